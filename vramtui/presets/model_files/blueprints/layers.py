"""What most towers for images are made of, in the language of `blueprint`."""

# Norms before attention and MLP, biases everywhere: the layers of CLIP, SigLIP and their kin.
LAYERS = """
each n:
qkvo: h, h; bias; x 4
norm: h; bias; x 2
up: i, h; bias
down: h, i; bias
once:
"""
# The same with queries, keys and values in one projection.
BLOCKS = """
each n:
qkv: 3*h, h; bias
proj: h, h; bias
norm: h; bias; x 2
up: i, h; bias
down: h, i; bias
once:
"""
PATCH = """
conv_patch: h, c, p, p; bias
"""
POOL = """
probe: h; if get(vision_use_head, True)
pool_in: 3*h, h; bias; if get(vision_use_head, True)
pool_out: h, h; bias; if get(vision_use_head, True)
pool_norm: h; bias; if get(vision_use_head, True)
pool_up: i, h; bias; if get(vision_use_head, True)
pool_down: h, i; bias; if get(vision_use_head, True)
"""
PLAIN = PATCH + "positions: grid, h\n" + LAYERS + "post_norm: h; bias\n"
CLIP = "class: h\nconv_patch: h, c, p, p\npositions: grid + 1, h\n" + LAYERS + "pre_norm: h; bias\npost_norm: h; bias\n"
BLIP = PATCH + "class: h\npositions: grid + 1, h\n" + BLOCKS + "post_norm: h; bias\n"

"""Programs of what diffusion runs on: UNets and transformers over latents, as diffusers has them."""

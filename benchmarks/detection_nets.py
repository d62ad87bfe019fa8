"""Torchvision's nets for detection and segmentation, without what chooses boxes: modules that torch.fx can follow.

They are those of the published weights: their frozen stages and norms, auxiliary heads and classes.
"""

from collections.abc import Iterator
from typing import Any

import torch
import torchvision  # type: ignore[import-not-found] # only here
from torch import Tensor, nn

SEGMENTATION = (
    *("fcn_resnet50", "fcn_resnet101", "deeplabv3_resnet50", "deeplabv3_resnet101", "deeplabv3_mobilenet_v3_large"),
    "lraspp_mobilenet_v3_large",
)
DETECTION = (
    *("fasterrcnn_resnet50_fpn", "fasterrcnn_resnet50_fpn_v2", "fasterrcnn_mobilenet_v3_large_fpn"),
    *("fasterrcnn_mobilenet_v3_large_320_fpn", "maskrcnn_resnet50_fpn", "maskrcnn_resnet50_fpn_v2"),
    *("keypointrcnn_resnet50_fpn", "retinanet_resnet50_fpn", "retinanet_resnet50_fpn_v2", "fcos_resnet50_fpn"),
    *("ssd300_vgg16", "ssdlite320_mobilenet_v3_large"),
)


class Output(nn.Module):
    """Marks an answer and its loss."""

    def __init__(self, loss: str, *, rows: bool = True) -> None:
        super().__init__()
        self.loss, self.rows = loss, rows

    def forward(self, x: Tensor) -> Tensor:
        """The same."""
        return x


class Regions(nn.Module):
    """Stands for MultiScaleRoIAlign; counts are its model's, at most."""

    def __init__(self, size: int, training: int, inference: int) -> None:
        super().__init__()
        self.size, self.counts = size, {"training": training, "inference": inference}

    def forward(self, *levels: Tensor) -> Tensor:
        """As many empty squares."""
        count = self.counts["training" if self.training else "inference"] * len(levels[0])
        return levels[0].new_zeros(count, levels[0].shape[1], self.size, self.size)


class Hold(nn.Module):
    """Marks where locals of a forward are let go."""

    def forward(self, *tensors: Tensor) -> None:
        """Nothing."""


class Pyramid(nn.Module):
    """BackboneWithFPN with its locals, which a graph does not know: every stage's answer and the last sum's terms."""

    def __init__(self, backbone: Any) -> None:  # noqa: ANN401 - as above
        super().__init__()
        self.body, self.fpn, self.hold = backbone.body, backbone.fpn, Hold()

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        """The levels, the largest first."""
        stages = self.body(x)
        names, features = list(stages), list(stages.values())
        above = self.fpn.inner_blocks[-1](features[-1])
        results = [self.fpn.layer_blocks[-1](above)]
        alive: list[Tensor] = []
        for inner, layer, feature in list(zip(self.fpn.inner_blocks, self.fpn.layer_blocks, features, strict=True))[
            -2::-1
        ]:
            lateral = inner(feature)
            down = nn.functional.interpolate(above, size=lateral.shape[-2:], mode="nearest")
            above = lateral + down
            results.insert(0, layer(above))
            alive = [lateral, down, above]
        self.hold(*alive)
        results, names = self.fpn.extra_blocks(results, features, names)
        self.hold(*stages.values())
        return dict(zip(names, results, strict=True))


class Segmented(nn.Module):
    """A net that gives every pixel a class, and an auxiliary answer where it has one."""

    def __init__(self, net: Any) -> None:  # noqa: ANN401 - torchvision has no types
        super().__init__()
        self.net, self.output = net, Output("cross_entropy", rows=False)

    def forward(self, x: Tensor) -> list[Tensor]:
        """Every answer."""
        return [self.output(answer) for answer in self.net(x).values()]


class Dense(nn.Module):
    """RetinaNet, FCOS, SSD: the same heads over every level, or a head for each."""

    def __init__(self, net: Any) -> None:  # noqa: ANN401 - as above
        super().__init__()
        self.backbone, self.head = _backbone(net), net.head
        self.single = hasattr(net.head.classification_head, "module_list")
        self.focal, self.sampled = Output("cross_entropy" if self.single else "focal"), Output("sampled")

    def forward(self, x: Tensor) -> list[Tensor]:
        """Every answer."""
        levels = list(self.backbone(x).values())
        classes, boxes = self.head.classification_head, self.head.regression_head
        if self.single:
            answers = [self.sampled(head(level)) for head, level in zip(boxes.module_list, levels, strict=True)]
            return answers + [self.focal(head(level)) for head, level in zip(classes.module_list, levels, strict=True)]
        answers = [self.focal(classes.cls_logits(classes.conv(level))) for level in levels]
        for level in levels:
            features = boxes.conv(level)
            box = boxes.bbox_reg(features)
            centred = hasattr(boxes, "bbox_ctrness")
            answers.append(self.sampled(torch.relu(box) if centred else box))
            if centred:
                answers.append(self.sampled(boxes.bbox_ctrness(features)))
        return answers


class Proposed(nn.Module):
    """Faster, Mask and Keypoint R-CNN: heads over every level, then over squares cut out of them."""

    def __init__(self, net: Any) -> None:  # noqa: ANN401 - as above
        super().__init__()
        self.backbone, self.rpn, self.rois = _backbone(net), net.rpn.head, net.roi_heads
        sampled = net.roi_heads.fg_bg_sampler.batch_size_per_image
        positive = int(sampled * net.roi_heads.fg_bg_sampler.positive_fraction)
        self.names = net.roi_heads.box_roi_pool.featmap_names
        self.boxes = Regions(_side(net.roi_heads.box_roi_pool), sampled, net.rpn.post_nms_top_n())
        self.more: nn.Module | None = None
        self.kind = next((kind for kind in ("mask", "keypoint") if getattr(net.roi_heads, f"has_{kind}")()), "")
        if self.kind:
            pool = getattr(net.roi_heads, f"{self.kind}_roi_pool")
            self.more = Regions(_side(pool), positive, net.roi_heads.detections_per_img)
        self.sampled, self.plain = Output("sampled"), Output("sampled", rows=False)

    def forward(self, x: Tensor) -> list[Tensor]:
        """Every answer."""
        levels = self.backbone(x)
        answers = []
        for level in levels.values():
            features = self.rpn.conv(level)
            answers += [self.sampled(self.rpn.cls_logits(features)), self.sampled(self.rpn.bbox_pred(features))]
        pooled = [levels[name] for name in self.names if name in levels]
        features = self.rois.box_head(self.boxes(*pooled))
        predictor = self.rois.box_predictor
        answers += [self.plain(predictor.cls_score(features)), self.plain(predictor.bbox_pred(features))]
        if self.more is not None:
            features = getattr(self.rois, f"{self.kind}_head")(self.more(*pooled))
            answers.append(self.plain(getattr(self.rois, f"{self.kind}_predictor")(features)))
        return answers


def _backbone(net: Any) -> nn.Module:  # noqa: ANN401 - as above
    found: nn.Module = Pyramid(net.backbone) if hasattr(net.backbone, "fpn") else net.backbone
    return found


def _side(pool: Any) -> int:  # noqa: ANN401 - as above
    return int(pool.output_size[0])


def published(name: str) -> Any:  # noqa: ANN401 - as above
    """The net as its published weights have it; none are read."""
    weights = torchvision.models.get_model_weights(name).DEFAULT
    kept = type(weights).get_state_dict, nn.Module.load_state_dict
    torchvision.models.WeightsEnum.get_state_dict = lambda *_, **__: {}
    nn.Module.load_state_dict = lambda *_, **__: None  # type: ignore[method-assign] # given back below
    try:
        return torchvision.models.get_model(name, weights=weights)
    finally:
        torchvision.models.WeightsEnum.get_state_dict, nn.Module.load_state_dict = kept  # type: ignore[method-assign] # as above


def part_of(name: str, net: Any) -> nn.Module:  # noqa: ANN401 - as above
    """What torch.fx can follow of a net for detection or segmentation."""
    if name in SEGMENTATION:
        return Segmented(net)
    return Proposed(net.eval()).train() if hasattr(net, "roi_heads") else Dense(net)


def image_of(name: str, net: Any) -> list[int]:  # noqa: ANN401 - as above
    """Height and width that the model sees of a wide photo of 4:3 or longer, padded as its transform pads."""
    if name in SEGMENTATION:
        return [520, 520]
    transform = net.transform
    if transform.fixed_size is not None:
        return list(transform.fixed_size)[::-1]
    low, high, step = transform.min_size[-1], transform.max_size, transform.size_divisible
    return [-(-side // step) * step for side in (low, high)]


def nets() -> Iterator[tuple[str, nn.Module, Any, list[int]]]:
    """Name, what can be followed, the whole net, and the image's size."""
    for name in SEGMENTATION + DETECTION:
        net = published(name)
        yield name, part_of(name, net), net, image_of(name, net)

"""One run of the sweep: trains a YOLO detector with the parameters that W&B chose."""

import wandb
from ultralytics import YOLO


def main() -> None:
    run = wandb.init(project="cone-detection")
    config = wandb.config

    model = YOLO(config.model)
    model.train(
        data=config.data,
        epochs=config.epochs,
        imgsz=config.imgsz,
        batch=config.batch,
        lr0=config.lr0,
        lrf=config.lrf,
        momentum=config.momentum,
        weight_decay=config.weight_decay,
        warmup_epochs=config.warmup_epochs,
        hsv_s=config.hsv_s,
        hsv_v=config.hsv_v,
        scale=config.scale,
        mosaic=config.mosaic,
        workers=16,
        optimizer="AdamW",
        device=0,
        project="runs-sweep",
        name=run.name,
        exist_ok=True,
    )
    run.finish()


if __name__ == "__main__":
    main()

"""GPUs as a Prometheus server knows them from dcgm-exporter."""

"""Training frameworks: which plans each can run, and with which formats and kernels."""

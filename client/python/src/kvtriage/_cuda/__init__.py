"""The CUDA driver through ctypes: no toolkit, no torch, and no cost for who has no device."""

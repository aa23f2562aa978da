"""What `heddle bench` is made of: kernels timed out of compiled artifacts, beside their peers."""

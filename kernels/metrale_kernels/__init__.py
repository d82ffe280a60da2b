"""Triton kernels, one file per operation: the formula, the kernel, the launcher.

Importing a file imports Triton; this package alone does not.
"""

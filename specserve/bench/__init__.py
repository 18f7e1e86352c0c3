"""Measuring. Every number is printed with its circumstances; the last line of output is JSON."""

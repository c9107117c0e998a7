"""Dask, jobs and files: what is done and what is missing of a study."""

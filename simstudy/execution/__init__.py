"""Execution of studies: executors, files of batches and results, and the state of a run."""

"""This process and its machine: threads and their waits, forks, CPUs, memory, frames of calls, exceptions, texts. Imports errors only."""

"""What is not there when a program runs offline on another machine: weights, tokenizers, data sets, loggers.

Every stand-in is an assumption that the report states.
"""

"""Keeps the peaks of real runs in a file of the user, and says what they teach about jobs to come."""

from layouts import parts  # noqa: F401

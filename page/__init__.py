"""The page: forms, run control, queue and wire around the engine. Starts and replays without torch."""

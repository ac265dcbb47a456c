"""Trace in; messages, HTML, CSS and JavaScript out. Runs without torch and without gradio."""

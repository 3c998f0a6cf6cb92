"""The JupyterLab face: what runs in or starts the Jupyter server process. No model runs here."""

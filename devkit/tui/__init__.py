"""The terminal workbench: screens over the control API. A face: it never imports the runtime.

One module per screen (`models` … `export`); `store` is what they show, `feed` brings it, `lines` is
the widget they draw with, `app` the frame. What a screen needs to know about a model belongs into
the runtime, so that other faces have it, too.
"""

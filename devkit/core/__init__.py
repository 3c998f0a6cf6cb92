"""The path of a request: engine, repository, model, scheduler, instance; no protocol is spoken."""

"""Models behind HTTP, in the wire format of OpenAI's API (`heddle serve`)."""

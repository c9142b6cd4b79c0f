"""Language models. One file an adapter; a server that speaks OpenAI's interface needs no new one."""

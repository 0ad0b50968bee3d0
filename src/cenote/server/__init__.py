"""The HTTP doors: reference and OpenAI routes over the engine. Needs the extra `server`.

One table, `routes.ROUTES`, says which path is answered by what; the application and its OpenAPI document are both
built from it. Each dialect is a module that turns its own request into a call of an engine and the outcome into its
own response; arrays are encoded in `arrays`, failures in `refusals`, and nowhere else.
"""

"""The HTTP doors: reference and OpenAI routes over the engine. Needs the extra `server`.

One table, `routes.ROUTES`, says which path is answered by what; the application and its OpenAPI document are both
built from it. Each dialect is a module that turns its own request into a call of an engine and the outcome into its
own response, says how it tells failures, and lists its rows of the table; where dialects share a path, headers and keys
of the body decide (`route`). Arrays are encoded in `arrays`, failures get their status in `refusals`, and nowhere else.
"""

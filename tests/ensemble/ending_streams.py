"""Has each stream of a lock or barrier end: it waits for what another holds, and not for long.

What a description says is wrong stays as it is.
"""

import re

import schemathesis

NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")
SIZE = re.compile(r"0*[1-9][0-9]{0,9}")
SPAN = re.compile(r"[0-9]+(ms|s|m|h)")


@schemathesis.hook
def before_call(context, case, kwargs):
    operation = case.operation.definition.raw.get("operationId")
    if operation not in ("hold", "keep", "enter"):
        return
    query, path = case.query, case.path_parameters
    if query is not None and ("wait" not in query or SPAN.fullmatch(str(query["wait"]))):
        query["wait"] = "50ms"
    if NAME.fullmatch(str(path.get("name"))):
        path["name"] = "taken"
    if operation == "enter" and query and SIZE.fullmatch(str(query.get("size"))):
        query["size"] = max(2, int(query["size"]))

"""An MCP server over stdio that misbehaves as a file beside it says; it speaks the revision with a handshake."""
import json
import os
import sys
import time

ORDERS = sys.argv[1]


def order(name, default=None):
    """What the file says now."""
    with open(ORDERS) as file:
        return json.load(file).get(name, default)


def send(message):
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def tools():
    number = {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]}
    listed = [
        {"name": "double", "description": order("description", "Doubles a number"), "inputSchema": number,
         "outputSchema": {"type": "object", "properties": {"result": {"type": "integer"}}, "required": ["result"]},
         "annotations": {"readOnlyHint": True}},
        {"name": "show-environment", "description": "", "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": True}},
        {"name": "plain", "description": "", "inputSchema": number, "annotations": {"readOnlyHint": True}},
    ]
    return listed + order("more_tools", [])


def call(name, arguments):
    mode = order("mode")
    if mode == "hang":
        time.sleep(3600)
    if mode == "die":
        print("out of patience", file=sys.stderr)
        sys.exit(3)
    if mode == "lie":
        return {"content": [], "structuredContent": {"result": "many"}}
    if mode == "fail":
        return {"content": [{"type": "text", "text": "there is no such thing"}], "isError": True}
    if mode == "flood":
        return {"content": [{"type": "text", "text": "x" * 6_000_000}]}
    if mode == "endless":
        while True:
            sys.stdout.write("x" * 65536)
    if mode == "garbage":
        sys.stdout.write("not json\n{\"jsonrpc\": 7}\n[]\n")
    if name == "show-environment":
        return {"content": [{"type": "text", "text": json.dumps(dict(os.environ))}]}
    if name == "plain":
        return {"content": [{"type": "text", "text": json.dumps({"doubled": arguments["x"] * 2})}]}
    return {"content": [], "structuredContent": {"result": arguments["x"] * 2}}


for line in sys.stdin:
    message = json.loads(line)
    method, ident = message.get("method"), message.get("id")
    if ident is None:
        continue
    if method == "initialize":
        answer = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {"listChanged": True}},
                  "serverInfo": {"name": "hostile", "version": "1"}}
    elif method == "tools/list":
        answer = {"tools": tools()}
    elif method == "tools/call":
        answer = call(message["params"]["name"], message["params"].get("arguments", {}))
        if order("notify"):
            send({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
    else:
        send({"jsonrpc": "2.0", "id": ident, "error": {"code": -32601, "message": "Method not found"}})
        continue
    send({"jsonrpc": "2.0", "id": ident, "result": answer})

"""Programs on both sides of a sentinel: instances, and clients with libraries that others wrote."""

import asyncio
import socket
import sys
import threading

BLOCK = bytes(1 << 16)


def said(port):
    print(port, flush=True)


def read_body(file, headers):
    """How many bytes a body has; none of them is kept."""
    count = 0
    if headers.get("transfer-encoding") == "chunked":
        while True:
            size = int(file.readline().split(b";")[0], 16)
            if size == 0:
                while file.readline() not in (b"\r\n", b""):
                    pass
                return count
            left = size
            while left:
                left -= len(file.read(min(left, len(BLOCK))))
            file.readline()
            count += size
    left = int(headers.get("content-length", "0"))
    while count < left:
        part = file.read(min(left - count, len(BLOCK)))
        if not part:
            return count
        count += len(part)
    return count


def serve_bodies(connection):
    file = connection.makefile("rb", 1 << 16)
    while True:
        line = file.readline()
        if not line:
            return
        _, path, _ = line.decode().split(" ")
        headers = {}
        while (line := file.readline()) not in (b"\r\n", b""):
            name, value = line.decode().split(":", 1)
            headers[name.lower()] = value.strip()
        came = read_body(file, headers)
        if path.startswith("/bytes/"):
            left = int(path.split("/")[2])
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % left)
            while left:
                left -= connection.send(BLOCK[: min(left, len(BLOCK))])
        else:
            text = str(came).encode()
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(text), text))


def bodies():
    listener = socket.create_server(("127.0.0.1", 0))
    said(listener.getsockname()[1])
    while True:
        connection, _ = listener.accept()
        threading.Thread(target=serve_bodies, args=(connection,), daemon=True).start()


def websocket_server():
    import websockets

    async def echo(websocket):
        async for message in websocket:
            await websocket.send(message)

    async def main():
        async with websockets.serve(echo, "127.0.0.1", 0, max_size=None) as server:
            said(server.sockets[0].getsockname()[1])
            await asyncio.Future()

    asyncio.run(main())


def websocket_client(host, port):
    import websockets

    async def main():
        uri = f"ws://{host}/chat"
        async with websockets.connect(uri, host="127.0.0.1", port=int(port), max_size=None) as websocket:
            for size in (0, 1, 125, 126, 65535, 65536, 1 << 20):
                for message in ("a" * size, b"\x00" * size):
                    await websocket.send(message)
                    assert await websocket.recv() == message, size
            await (await websocket.ping())
            await websocket.close(code=1000)
        assert websocket.close_code == 1000
        print("echoed")

    asyncio.run(main())


def grpc_server():
    import grpc
    from concurrent import futures

    def chat(requests, context):
        for request in requests:
            if request == b"fail":
                context.set_trailing_metadata((("reason", "asked-to"),))
                context.abort(grpc.StatusCode.FAILED_PRECONDITION, "as you wish")
            yield request

    handler = grpc.stream_stream_rpc_method_handler(chat)
    server = grpc.server(futures.ThreadPoolExecutor(8))
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("test.Echo", {"Chat": handler}),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    said(port)
    server.wait_for_termination()


def grpc_client(host, port):
    import queue

    import grpc

    options = (("grpc.default_authority", host),)
    with grpc.insecure_channel(f"127.0.0.1:{port}", options=options) as channel:
        chat = channel.stream_stream("/test.Echo/Chat")
        sent = queue.Queue()
        answers = chat(iter(sent.get, None), timeout=60)
        for number in range(500):
            message = b"%d" % number * (1 + number % 50)
            sent.put(message)
            assert next(answers) == message, "the answer to one comes before the next is sent"
        sent.put(None)
        assert list(answers) == []
        assert answers.code() == grpc.StatusCode.OK
        failing = chat(iter([b"one", b"fail"]), timeout=60)
        try:
            list(failing)
            raise AssertionError("it should have failed")
        except grpc.RpcError:
            assert failing.code() == grpc.StatusCode.FAILED_PRECONDITION
            assert failing.details() == "as you wish"
            assert ("reason", "asked-to") in failing.trailing_metadata()
        print("echoed")


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])

"""A gRPC client that others made. It knows no message of ours: it sends bytes and tells the bytes that come back."""

import sys

import grpc

address, token, call_path, stream_path, message = sys.argv[1:6]
message = bytes.fromhex(message)


def raw(data):
    return data


def say(word, text):
    print(word, text, flush=True)


with grpc.insecure_channel(address) as channel:
    call = channel.unary_unary(call_path, request_serializer=raw, response_deserializer=raw)
    stream = channel.unary_stream(stream_path, request_serializer=raw, response_deserializer=raw)
    good = [("authorization", "Bearer " + token)]
    for metadata in [[], [("authorization", "Bearer " + token[:-1])]]:
        try:
            call(message, metadata=metadata, timeout=30)
        except grpc.RpcError as error:
            say("refused", error.code().name)
        try:
            for _ in stream(message, metadata=metadata, timeout=30):
                say("message", "that nobody may have")
        except grpc.RpcError as error:
            say("refused", error.code().name)
    say("answer", call(message, metadata=good, timeout=30).hex())
    for state in stream(message, metadata=good, timeout=60):
        say("message", state.hex())

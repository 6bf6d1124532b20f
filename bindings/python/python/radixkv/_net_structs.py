"""The structs of radixkv_net.h, and the one of radixkv.h that it fills."""

import ctypes


class Config(ctypes.Structure):
    struct_size: int
    flags: int
    endpoint: bytes | None
    replay_endpoint: bytes | None
    topic: bytes | None
    data_parallel_rank: int
    replay_batch_limit: int
    queue_batch_limit: int
    reserved: int
    _fields_ = [
        ("struct_size", ctypes.c_uint32),
        ("flags", ctypes.c_uint32),
        ("endpoint", ctypes.c_char_p),
        ("replay_endpoint", ctypes.c_char_p),
        ("topic", ctypes.c_char_p),
        ("data_parallel_rank", ctypes.c_uint32),
        ("replay_batch_limit", ctypes.c_uint32),
        ("queue_batch_limit", ctypes.c_uint32),
        ("reserved", ctypes.c_uint32),
    ]


class Stats(ctypes.Structure):
    struct_size: int
    port: int
    replay_port: int
    published_batch_count: int
    published_byte_count: int
    dropped_batch_count: int
    queued_batch_count: int
    replay_batch_count: int
    replay_request_count: int
    _fields_ = [
        ("struct_size", ctypes.c_uint32),
        ("port", ctypes.c_uint16),
        ("replay_port", ctypes.c_uint16),
        ("published_batch_count", ctypes.c_uint64),
        ("published_byte_count", ctypes.c_uint64),
        ("dropped_batch_count", ctypes.c_uint64),
        ("queued_batch_count", ctypes.c_uint64),
        ("replay_batch_count", ctypes.c_uint64),
        ("replay_request_count", ctypes.c_uint64),
    ]


class StoreConfig(ctypes.Structure):
    struct_size: int
    flags: int
    url: bytes | None
    prefix: bytes | None
    endpoint: bytes | None
    ttl_s: int
    connection_count: int
    reserved: int
    ca_file: bytes | None
    _fields_ = [
        ("struct_size", ctypes.c_uint32),
        ("flags", ctypes.c_uint32),
        ("url", ctypes.c_char_p),
        ("prefix", ctypes.c_char_p),
        ("endpoint", ctypes.c_char_p),
        ("ttl_s", ctypes.c_uint64),
        ("connection_count", ctypes.c_uint32),
        ("reserved", ctypes.c_uint32),
        ("ca_file", ctypes.c_char_p),
    ]


class RemoteStore(ctypes.Structure):
    struct_size: int
    reserved: int
    user_data: int | None
    has: int | None
    get: int | None
    put: int | None
    remove: int | None
    _fields_ = [
        ("struct_size", ctypes.c_uint32),
        ("reserved", ctypes.c_uint32),
        ("user_data", ctypes.c_void_p),
        ("has", ctypes.c_void_p),
        ("get", ctypes.c_void_p),
        ("put", ctypes.c_void_p),
        ("remove", ctypes.c_void_p),
    ]

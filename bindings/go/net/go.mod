module github.com/radixkv/radixkv/bindings/go/net

go 1.21

module github.com/radixkv/radixkv/bindings/go

go 1.21

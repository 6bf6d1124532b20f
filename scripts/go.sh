# For `source`, in the folder of the tree: whether there is a Go that the binding takes.

go_minor=$(sed -n 's/^go 1\.\([0-9]*\).*/\1/p' bindings/go/go.mod) # of Go 1, the oldest
has_go() {
    local minor
    minor=$(GOTOOLCHAIN=local go env GOVERSION 2>/dev/null | sed -n 's/.*go1\.\([0-9]*\).*/\1/p')
    [ "${minor:-0}" -ge "$go_minor" ]
}

//go:build cgo

// Command plugin is the Fluent Bit output plugin "muster", built as a shared object
// (go build -buildmode=c-shared -o out_muster.so). It only passes Fluent Bit's
// calls on to package fluentbit, whose comment has the configuration keys, and must
// hold no logic of its own. Fluent Bit loads it by its plugins file.
package main

import "C"

import (
	"log/slog"
	"os"
	"unsafe"

	"github.com/fluent/fluent-bit-go/output"

	"muster.dev/muster/collector/fluentbit"
)

//export FLBPluginRegister
func FLBPluginRegister(def unsafe.Pointer) int {
	return output.FLBPluginRegister(def, "muster", "Muster: logs to the regional intake")
}

//export FLBPluginInit
func FLBPluginInit(plugin unsafe.Pointer) int {
	log := slog.New(slog.NewTextHandler(os.Stderr, nil)).With("plugin", "out_muster")
	cfg, err := fluentbit.ParseConfig(func(key string) string { return output.FLBPluginConfigKey(plugin, key) })
	if err != nil {
		log.Error("configuration", "err", err)
		return output.FLB_ERROR
	}
	out, err := fluentbit.New(cfg, log)
	if err != nil {
		log.Error("configuration", "err", err)
		return output.FLB_ERROR
	}
	output.FLBPluginSetContext(plugin, out)
	return output.FLB_OK
}

//export FLBPluginFlushCtx
func FLBPluginFlushCtx(ctx, data unsafe.Pointer, length C.int, tag *C.char) int {
	out, ok := output.FLBPluginGetContext(ctx).(*fluentbit.Output)
	if !ok {
		return output.FLB_ERROR
	}
	// Fluent Bit's memory is ours until this call returns, and Flush keeps none of it.
	switch out.Flush(unsafe.Slice((*byte)(data), int(length)), C.GoString(tag)) {
	case fluentbit.OK:
		return output.FLB_OK
	case fluentbit.Retry:
		return output.FLB_RETRY
	}
	return output.FLB_ERROR
}

//export FLBPluginExitCtx
func FLBPluginExitCtx(ctx unsafe.Pointer) int {
	if out, ok := output.FLBPluginGetContext(ctx).(*fluentbit.Output); ok {
		out.Close()
	}
	return output.FLB_OK
}

//export FLBPluginUnregister
func FLBPluginUnregister(def unsafe.Pointer) { output.FLBPluginUnregister(def) }

func main() {}

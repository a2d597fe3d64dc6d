package render

import "k8s.io/apimachinery/pkg/runtime"

func raw(s string) runtime.RawExtension { return runtime.RawExtension{Raw: []byte(s)} }

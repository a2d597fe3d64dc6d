package apiserver

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	api "k8s.io/kubernetes/pkg/apis/core"
	"k8s.io/kubernetes/pkg/printers"
	printersinternal "k8s.io/kubernetes/pkg/printers/internalversion"
	printerstorage "k8s.io/kubernetes/pkg/printers/storage"
)

// Tables are kubectl's columns of Pods, Nodes and Events, by kind, for objects of core/v1.
func Tables() map[string]rest.TableConvertor {
	stock := printerstorage.TableConvertor{TableGenerator: printers.NewTableGenerator().With(printersinternal.AddHandlers)}
	return map[string]rest.TableConvertor{"Pod": tables{stock}, "Node": tables{stock}, "Event": tables{stock}}
}

// tables has the stock columns made, which are of internal objects.
type tables struct{ stock rest.TableConvertor }

// ConvertToTable implements rest.TableConvertor.
func (t tables) ConvertToTable(ctx context.Context, o, options runtime.Object) (*metav1.Table, error) {
	if _, ok := o.(*metav1.Status); ok {
		return t.stock.ConvertToTable(ctx, o, options)
	}
	internal, err := legacyscheme.Scheme.ConvertToVersion(o, api.SchemeGroupVersion)
	if err != nil {
		return nil, err
	}
	table, err := t.stock.ConvertToTable(ctx, internal, options)
	if err != nil {
		return nil, err
	}
	// The rows hold what clients get, which is not the internal form.
	for i := range table.Rows {
		if in := table.Rows[i].Object.Object; in != nil {
			if table.Rows[i].Object.Object, err = legacyscheme.Scheme.ConvertToVersion(in, corev1.SchemeGroupVersion); err != nil {
				return nil, err
			}
		}
	}
	return table, nil
}

package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/prometheus/common/model"

	"muster.dev/muster/aggregator/query"
	"muster.dev/muster/control/vk8s/status"
)

// usage reads what pods and nodes use from the tenant's metrics: cAdvisor's, of sites that
// are clusters. Of a node it is the root cgroup's.
func usage(ask func(ctx context.Context, tenant string, r query.Request) (int, []byte)) func(context.Context, status.UsageOf) ([]status.Usage, error) {
	return func(ctx context.Context, of status.UsageOf) ([]status.Usage, error) {
		type key struct{ site, name, container model.LabelValue }
		found, order := map[key]*status.Usage{}, []key{}
		by, match, name := "site, pod, container", fmt.Sprintf(`namespace=%q,container!="",container!="POD"`, of.Namespace), model.LabelName("pod")
		if of.Nodes {
			by, match, name = "site, node", `namespace="",pod="",container=""`, "node"
		}
		if of.Name != "" {
			match += fmt.Sprintf(",site=%q,%s=%q", of.Site, name, of.Name)
		}
		cpu := fmt.Sprintf("max by (%s) (rate(container_cpu_usage_seconds_total{%s}[%s]))", by, match, model.Duration(status.UsageWindow))
		memory := fmt.Sprintf("max by (%s) (container_memory_working_set_bytes{%s})", by, match)
		for _, expr := range []string{cpu, memory} {
			code, body := ask(ctx, of.Tenant, query.Request{Expr: expr})
			v, err := vectorOf(code, body)
			if err != nil {
				return nil, err
			}
			for _, s := range v {
				k := key{s.Metric["site"], s.Metric[name], s.Metric["container"]}
				u := found[k]
				if u == nil {
					u = &status.Usage{Site: string(k.site), Name: string(k.name), Container: string(k.container)}
					found[k], order = u, append(order, k)
				}
				value := float64(s.Value)
				if expr == cpu {
					u.CPU = &value
				} else {
					u.Memory = &value
				}
			}
		}
		out := make([]status.Usage, len(order))
		for i, k := range order {
			out[i] = *found[k]
		}
		return out, nil
	}
}

// vectorOf reads an answer of the Prometheus HTTP API.
func vectorOf(code int, body []byte) (model.Vector, error) {
	var a struct {
		Error string `json:"error"`
		Data  struct {
			Result model.Vector `json:"result"`
		} `json:"data"`
	}
	err := json.Unmarshal(body, &a)
	switch {
	case code != http.StatusOK && a.Error != "":
		return nil, errors.New(a.Error)
	case code != http.StatusOK || err != nil:
		return nil, fmt.Errorf("the metric store gave no usable answer (%d)", code)
	}
	return a.Data.Result, nil
}

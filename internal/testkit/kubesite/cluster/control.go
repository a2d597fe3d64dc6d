package cluster

import (
	"fmt"
	"net/http"
	"strconv"
)

// Handler takes what tests do to a cluster from outside of Kubernetes. Each request is a POST
// with its arguments in the query; it is answered when the thing is done.
//
//	/crash     namespace, pod, container (empty: all), code: the containers exit with it
//	/say       namespace, pod, container, line: into the log
//	/pull      image, fail: pulls of images with this in their names fail, or no longer
//	/die       image: containers of such images exit as they start
//	/network   node, cut: the node's kubelet can't be reached, and reaches nobody
//	/apiserver down: the API server's connections end, and new ones are refused, or no longer
func (c *Cluster) Handler() http.Handler {
	mux := http.NewServeMux()
	on := func(path string, do func(arg func(string) string) error) {
		mux.HandleFunc("POST "+path, func(w http.ResponseWriter, r *http.Request) {
			if err := do(r.URL.Query().Get); err != nil {
				http.Error(w, err.Error(), http.StatusBadRequest)
			}
		})
	}
	on("/crash", func(arg func(string) string) error {
		code, err := strconv.ParseInt(arg("code"), 10, 32)
		if err != nil {
			return fmt.Errorf("code: %w", err)
		}
		return c.containers.crash(arg("namespace"), arg("pod"), arg("container"), int32(code))
	})
	on("/say", func(arg func(string) string) error {
		return c.containers.say(arg("namespace"), arg("pod"), arg("container"), arg("line"))
	})
	on("/pull", func(arg func(string) string) error {
		fail, err := strconv.ParseBool(arg("fail"))
		if err != nil {
			return fmt.Errorf("fail: %w", err)
		}
		c.containers.failPull(arg("image"), fail)
		return nil
	})
	on("/die", func(arg func(string) string) error {
		c.containers.die(arg("image"))
		return nil
	})
	on("/network", func(arg func(string) string) error {
		cut, err := strconv.ParseBool(arg("cut"))
		if err != nil {
			return fmt.Errorf("cut: %w", err)
		}
		n, err := c.node(arg("node"))
		if err != nil {
			return err
		}
		n.conns.set(cut)
		return nil
	})
	on("/apiserver", func(arg func(string) string) error {
		down, err := strconv.ParseBool(arg("down"))
		if err != nil {
			return fmt.Errorf("down: %w", err)
		}
		return c.door.set(down)
	})
	return mux
}

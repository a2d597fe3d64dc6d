package simsite

import (
	"strconv"
)

func none() entity { return entity{-1, -1, -1, -1, -1, -1} }

func nodesOf(s *shape, n int32) entity {
	e := none()
	e.node = n
	return e
}

// perNode gives each node items entities.
func perNode(items int) func(*shape) []entity {
	return func(s *shape) []entity {
		out := make([]entity, 0, s.nodes*items)
		for n := range s.nodes {
			for i := range items {
				e := nodesOf(s, int32(n))
				e.item = int32(i)
				out = append(out, e)
			}
		}
		return out
	}
}

func plain(count func(*shape) int, set func(*entity, int32)) func(*shape) []entity {
	return func(s *shape) []entity {
		out := make([]entity, count(s))
		for i := range out {
			out[i] = none()
			set(&out[i], int32(i))
		}
		return out
	}
}

func (s *shape) podEntity(p int) entity {
	e := none()
	e.pod, e.node = int32(p), int32(s.pods[p].node)
	e.deployment, e.daemon = int32(s.pods[p].deployment), int32(s.pods[p].daemon)
	return e
}

func containersWhere(keep func(containerSpec) bool) func(*shape) []entity {
	return func(s *shape) []entity {
		var out []entity
		for i, c := range s.containers {
			if keep(c) {
				e := s.podEntity(c.pod)
				e.container = int32(i)
				out = append(out, e)
			}
		}
		return out
	}
}

// scopes are the things that there is one series of.
var scopes = map[string]scope{
	"node":      {each: perNode(1)},
	"cpu":       {each: perNode(cpus)},
	"fs":        {each: perNode(len(filesystems))},
	"disk":      {each: perNode(len(disks))},
	"nic":       {each: perNode(len(nics))},
	"collector": {each: perNode(len(collectors))},
	"cgroup":    {each: perNode(len(cgroups))},
	"operation": {each: perNode(len(operations))},
	"pod": {each: func(s *shape) []entity {
		out := make([]entity, len(s.pods))
		for i := range out {
			out[i] = s.podEntity(i)
		}
		return out
	}},
	"pvc":         {each: func(s *shape) []entity { return []entity{s.podEntity(s.pvcPod)} }},
	"statefulset": {each: func(s *shape) []entity { return []entity{s.podEntity(s.pvcPod)} }},
	"container":   {each: containersWhere(func(containerSpec) bool { return true })},
	"limited":     {each: containersWhere(func(c containerSpec) bool { return c.limited })},
	"deployment":  {each: plain(func(s *shape) int { return len(s.deployments) }, func(e *entity, i int32) { e.deployment = i })},
	"daemonset":   {each: plain(func(s *shape) int { return len(s.daemonSets) }, func(e *entity, i int32) { e.daemon = i })},
	"namespace":   {each: plain(func(*shape) int { return len(namespaces) }, func(e *entity, i int32) { e.item = i })},
	"configmap":   {each: plain(func(s *shape) int { return s.configMaps }, func(e *entity, i int32) { e.item = i })},
	"secret":      {each: plain(func(s *shape) int { return s.secrets }, func(e *entity, i int32) { e.item = i })},
}

// siteVarOf finds a variable whose text differs between sites.
func (s *shape) siteVarOf(name string, e entity) (siteVar, int, bool) {
	onNode := map[string]siteVar{"node": varNode, "hostip": varHostIP, "sysuuid": varSystemUUID, "bootid": varBootID, "machineid": varMachineID, "mac": varMAC, "diskserial": varDiskSerial}
	onPod := map[string]siteVar{"uid": varUID, "uid_": varUIDUnderscore, "podip": varPodIP, "sandbox": varSandbox}
	if v, ok := onNode[name]; ok && e.node >= 0 {
		return v, int(e.node), true
	}
	if v, ok := onPod[name]; ok && e.pod >= 0 {
		return v, int(e.pod), true
	}
	if name == "cid" && e.container >= 0 {
		return varCID, int(e.container), true
	}
	if name == "serviceuid" && e.deployment >= 0 {
		return varServiceUID, int(e.deployment), true
	}
	return 0, 0, false
}

// staticVar finds a variable whose text is the same on all sites of the shape.
func (s *shape) staticVar(name string, e entity) (string, bool) {
	switch {
	case e.container >= 0:
		c := s.containers[e.container]
		switch name {
		case "container":
			return c.name, true
		case "image":
			return c.image, true
		case "imageid":
			return "registry.example.com/" + c.name + "@sha256:" + longHex(hashString(c.image)), true
		case "cgroup":
			return "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod$uid_.slice/cri-containerd-$cid.scope", true
		}
		return s.podVar(name, e)
	case e.pod >= 0:
		return s.podVar(name, e)
	case e.deployment >= 0:
		d := s.deployments[e.deployment]
		switch name {
		case "namespace":
			return d.namespace, true
		case "deployment":
			return d.name, true
		case "replicaset":
			return d.replicaSet, true
		case "depindex":
			return strconv.Itoa(int(e.deployment%250) + 1), true
		}
	case e.daemon >= 0:
		switch name {
		case "namespace":
			return namespaces[e.daemon], true
		case "daemonset":
			return s.daemonSets[e.daemon], true
		}
	case e.node >= 0:
		return nodeVar(name, e)
	default:
		return itemVar(name, e)
	}
	return "", false
}

func (s *shape) podVar(name string, e entity) (string, bool) {
	p := s.pods[e.pod]
	switch name {
	case "namespace":
		return p.namespace, true
	case "pod":
		return p.name, true
	case "app":
		return p.app, true
	case "ownerkind":
		return p.ownerKind, true
	case "owner":
		return p.owner, true
	case "priority":
		if p.ownerKind == "DaemonSet" {
			return "system-node-critical", true
		}
		return "", true
	case "hostnetwork":
		return strconv.FormatBool(p.ownerKind == "DaemonSet"), true
	case "podcgroup":
		return "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod$uid_.slice", true
	case "statefulset":
		return p.app, true
	case "pvc":
		return "data-" + p.name, true
	case "pvcvolume":
		return "pvc-$uid", true
	}
	return "", false
}

func nodeVar(name string, e entity) (string, bool) {
	switch name {
	case "nodeindex":
		return strconv.Itoa(int(e.node)), true
	case "cpu":
		return strconv.Itoa(int(e.item)), true
	case "dev":
		return filesystems[e.item].device, true
	case "fstype":
		return filesystems[e.item].fstype, true
	case "mount":
		return filesystems[e.item].mount, true
	case "disk":
		return disks[e.item], true
	case "nic":
		return nics[e.item], true
	case "collector":
		return collectors[e.item], true
	case "slice":
		return cgroups[e.item], true
	case "operation":
		return operations[e.item], true
	}
	return "", false
}

func itemVar(name string, e entity) (string, bool) {
	switch name {
	case "namespace":
		return namespaces[int(e.item)%len(namespaces)], true
	case "configmap":
		return apps[int(e.item)%len(apps)].name + "-config-" + suffix("configmap", int(e.item), 6), true
	case "secret":
		return apps[int(e.item)%len(apps)].name + "-credentials-" + suffix("secret", int(e.item), 6), true
	}
	return "", false
}

func longHex(h uint64) string {
	const digits = "0123456789abcdef"
	b := make([]byte, 64)
	for i := range b {
		b[i] = digits[h&15]
		if h >>= 4; i%16 == 15 {
			h = mix(h + uint64(i))
		}
	}
	return string(b)
}

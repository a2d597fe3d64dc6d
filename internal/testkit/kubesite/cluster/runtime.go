package cluster

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/client-go/tools/remotecommand"
	cri "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/kubelet/pkg/cri/streaming"
	kubelettypes "k8s.io/kubelet/pkg/types"
	utilexec "k8s.io/utils/exec"
)

// containers is a container runtime without containers: behind the interface of a real one, a
// container is a goroutine that runs a small shell (see program), with a directory and a log.
// The kubelet above it is the real one, so that whatever a pod's status says, it says because
// a kubelet found it so. One serves all nodes; each node sees its own through a view.
type containers struct {
	mu        sync.Mutex
	dir       string
	streams   streaming.Server
	pods      map[types.UID]*corev1.Pod // as the kubelet knew them when it made a container
	sandboxes map[string]*sandbox
	boxes     map[string]*box
	images    map[string]map[string]bool // by node
	failing   []string                   // images whose names have one of these in them
	dying     []string                   // images that exit with 1 as they start, told the same way
	nextIP    map[string]int
}

// sandbox is a pod's.
type sandbox struct {
	status *runtimeapi.PodSandboxStatus
	config *runtimeapi.PodSandboxConfig
	node   string
}

// box is a container.
type box struct {
	status  *runtimeapi.ContainerStatus
	config  *runtimeapi.ContainerConfig
	sandbox *sandbox
	root    string
	forever bool // what it runs, if we don't know it, serves until it is stopped

	stop func(code int32, reason string) // nil before it runs
	done chan struct{}
	log  *logFile
}

func newContainers(dir string) (*containers, error) {
	r := &containers{dir: dir, pods: map[types.UID]*corev1.Pod{}, sandboxes: map[string]*sandbox{}, boxes: map[string]*box{},
		images: map[string]map[string]bool{}, nextIP: map[string]int{}}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	config := streaming.DefaultConfig
	config.Addr = ln.Addr().String()
	if r.streams, err = streaming.NewServer(config, r); err != nil {
		return nil, err
	}
	go func() { _ = (&http.Server{Handler: r.streams, ReadHeaderTimeout: time.Minute}).Serve(ln) }()
	return r, nil
}

// learn remembers what a pod is of which a container is about to be made: the interface of
// container runtimes doesn't say which containers end by themselves.
func (r *containers) learn(pod *corev1.Pod) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.pods[pod.UID] = pod
}

// endsByItself says whether the container of that name is one that a pod waits for.
func endsByItself(pod *corev1.Pod, name string) bool {
	if pod == nil {
		return false
	}
	for _, c := range pod.Spec.InitContainers {
		if c.Name == name {
			return c.RestartPolicy == nil || *c.RestartPolicy != corev1.ContainerRestartPolicyAlways
		}
	}
	return pod.Spec.RestartPolicy != corev1.RestartPolicyAlways
}

// failPull has pulls of images fail whose names contain part, or no longer.
func (r *containers) failPull(part string, fail bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failing = slices.DeleteFunc(r.failing, func(s string) bool { return s == part })
	if !fail {
		return
	}
	r.failing = append(r.failing, part)
	for _, of := range r.images { // nobody has it any more
		maps.DeleteFunc(of, func(name string, _ bool) bool { return strings.Contains(name, part) })
	}
}

// die has containers of images exit as they start whose names contain part.
func (r *containers) die(part string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.dying = append(r.dying, part)
}

// running returns the running containers of a pod, or the one of that name.
func (r *containers) running(namespace, pod, name string) ([]*box, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var found []*box
	for _, b := range r.boxes {
		m := b.sandbox.config.Metadata
		if m.Namespace == namespace && m.Name == pod && (name == "" || b.config.Metadata.Name == name) && b.status.State == runtimeapi.ContainerState_CONTAINER_RUNNING {
			found = append(found, b)
		}
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("pod %s/%s has no running container %q", namespace, pod, name)
	}
	return found, nil
}

// crash ends containers of a pod with an exit code.
func (r *containers) crash(namespace, pod, name string, code int32) error {
	found, err := r.running(namespace, pod, name)
	for _, b := range found {
		b.stop(code, "Error")
		<-b.done
	}
	return err
}

// say writes a line into the log of containers of a pod.
func (r *containers) say(namespace, pod, name, line string) error {
	found, err := r.running(namespace, pod, name)
	for _, b := range found {
		b.log.write("stdout", line)
	}
	return err
}

func (r *containers) box(id string) (*box, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	b := r.boxes[id]
	if b == nil {
		return nil, fmt.Errorf("container %q not found", id)
	}
	return b, nil
}

// Exec implements streaming.Runtime.
func (r *containers) Exec(ctx context.Context, id string, cmd []string, in io.Reader, out, errOut io.WriteCloser, tty bool, _ <-chan remotecommand.TerminalSize) error {
	b, err := r.box(id)
	if err != nil {
		return err
	}
	if b.status.State != runtimeapi.ContainerState_CONTAINER_RUNNING {
		return fmt.Errorf("container %q is not running", id)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() { // what runs in a container ends with it
		select {
		case <-b.done:
			cancel()
		case <-ctx.Done():
		}
	}()
	if tty {
		errOut = nil
	}
	p := program{box: b, in: in, out: writer(out), err: writer(errOut), unknown: notFound}
	if tty {
		p.err = p.out
	}
	if code := p.run(ctx, cmd); code != 0 {
		return utilexec.CodeExitError{Err: fmt.Errorf("command terminated with exit code %d", code), Code: int(code)}
	}
	return nil
}

// writer takes a stream that nobody asked for as one that takes everything.
func writer(w io.Writer) io.Writer {
	if w == nil || w == (io.WriteCloser)(nil) {
		return io.Discard
	}
	return w
}

// Attach implements streaming.Runtime: what the container says from now on, and what is typed
// comes back.
func (r *containers) Attach(ctx context.Context, id string, in io.Reader, out, _ io.WriteCloser, _ bool, _ <-chan remotecommand.TerminalSize) error {
	b, err := r.box(id)
	if err != nil {
		return err
	}
	if out != nil {
		defer b.log.follow(out)()
	}
	typed := make(chan error, 1)
	if in != nil {
		go func() {
			_, err := io.Copy(writer(out), in)
			typed <- err
		}()
	}
	select {
	case <-b.done:
		return nil
	case err := <-typed:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// PortForward implements streaming.Runtime: on every port a pod answers HTTP with its name.
func (r *containers) PortForward(_ context.Context, id string, port int32, stream io.ReadWriteCloser) error {
	r.mu.Lock()
	s := r.sandboxes[id]
	r.mu.Unlock()
	if s == nil {
		return fmt.Errorf("pod sandbox %q not found", id)
	}
	return answerHTTP(stream, fmt.Sprintf("%s/%s port %d\n", s.config.Metadata.Namespace, s.config.Metadata.Name, port))
}

// view is the container runtime of one node.
type view struct {
	cri.RuntimeService // what is not here nobody calls
	*containers
	node string
	ips  string // "10.244.1."
}

var (
	_ cri.RuntimeService      = (*view)(nil)
	_ cri.ImageManagerService = (*imageView)(nil)
)

// Version implements cri.RuntimeService.
func (v *view) Version(context.Context, string) (*runtimeapi.VersionResponse, error) {
	return &runtimeapi.VersionResponse{Version: "0.1.0", RuntimeName: "kubesite", RuntimeVersion: "1.0.0", RuntimeApiVersion: "v1"}, nil
}

// Status implements cri.RuntimeService.
func (v *view) Status(context.Context, bool) (*runtimeapi.StatusResponse, error) {
	return &runtimeapi.StatusResponse{Status: &runtimeapi.RuntimeStatus{Conditions: []*runtimeapi.RuntimeCondition{
		{Type: runtimeapi.RuntimeReady, Status: true}, {Type: runtimeapi.NetworkReady, Status: true},
	}}, RuntimeHandlers: []*runtimeapi.RuntimeHandler{{}}}, nil
}

// UpdateRuntimeConfig implements cri.RuntimeService.
func (v *view) UpdateRuntimeConfig(context.Context, *runtimeapi.RuntimeConfig) error { return nil }

// RuntimeConfig implements cri.RuntimeService.
func (v *view) RuntimeConfig(context.Context) (*runtimeapi.RuntimeConfigResponse, error) {
	return &runtimeapi.RuntimeConfigResponse{}, nil
}

// Close implements cri.RuntimeService.
func (v *view) Close() error { return nil }

// RunPodSandbox implements cri.RuntimeService.
func (v *view) RunPodSandbox(_ context.Context, config *runtimeapi.PodSandboxConfig, handler string) (string, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	id := newID()
	options := config.GetLinux().GetSecurityContext().GetNamespaceOptions()
	network := &runtimeapi.PodSandboxNetworkStatus{}
	if options.GetNetwork() != runtimeapi.NamespaceMode_NODE {
		v.nextIP[v.node]++
		network.Ip = fmt.Sprintf("%s%d", v.ips, 1+v.nextIP[v.node]%250)
	}
	v.sandboxes[id] = &sandbox{node: v.node, config: config, status: &runtimeapi.PodSandboxStatus{
		Id: id, Metadata: config.Metadata, State: runtimeapi.PodSandboxState_SANDBOX_READY, CreatedAt: time.Now().UnixNano(), Network: network,
		Linux:  &runtimeapi.LinuxPodSandboxStatus{Namespaces: &runtimeapi.Namespace{Options: options}},
		Labels: config.Labels, Annotations: config.Annotations, RuntimeHandler: handler,
	}}
	return id, nil
}

// StopPodSandbox implements cri.RuntimeService.
func (v *view) StopPodSandbox(ctx context.Context, id string) error {
	v.mu.Lock()
	s := v.sandboxes[id]
	var in []string
	for boxID, b := range v.boxes {
		if b.sandbox == s {
			in = append(in, boxID)
		}
	}
	if s != nil {
		s.status.State = runtimeapi.PodSandboxState_SANDBOX_NOTREADY
	}
	v.mu.Unlock()
	for _, boxID := range in {
		_ = v.StopContainer(ctx, boxID, 0)
	}
	return nil
}

// RemovePodSandbox implements cri.RuntimeService.
func (v *view) RemovePodSandbox(ctx context.Context, id string) error {
	_ = v.StopPodSandbox(ctx, id)
	v.mu.Lock()
	defer v.mu.Unlock()
	s := v.sandboxes[id]
	if s == nil {
		return nil
	}
	for boxID, b := range v.boxes {
		if b.sandbox == s {
			v.forgetLocked(boxID)
		}
	}
	delete(v.sandboxes, id)
	delete(v.pods, types.UID(s.config.Metadata.Uid))
	return nil
}

func (v *view) forgetLocked(id string) {
	b := v.boxes[id]
	delete(v.boxes, id)
	_ = os.RemoveAll(b.root)
	b.log.close()
}

// PodSandboxStatus implements cri.RuntimeService.
func (v *view) PodSandboxStatus(_ context.Context, id string, _ bool) (*runtimeapi.PodSandboxStatusResponse, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	s := v.sandboxes[id]
	if s == nil {
		return nil, fmt.Errorf("pod sandbox %q not found", id)
	}
	return &runtimeapi.PodSandboxStatusResponse{Status: clone(s.status)}, nil
}

// ListPodSandbox implements cri.RuntimeService.
func (v *view) ListPodSandbox(_ context.Context, f *runtimeapi.PodSandboxFilter) ([]*runtimeapi.PodSandbox, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	var out []*runtimeapi.PodSandbox
	for id, s := range v.sandboxes {
		if s.node == v.node && (f.GetId() == "" || f.Id == id) && (f.GetState() == nil || f.State.State == s.status.State) && has(s.config.Labels, f.GetLabelSelector()) {
			st := s.status
			out = append(out, &runtimeapi.PodSandbox{Id: id, Metadata: st.Metadata, State: st.State, CreatedAt: st.CreatedAt, Labels: st.Labels, Annotations: st.Annotations, RuntimeHandler: st.RuntimeHandler})
		}
	}
	return out, nil
}

// CreateContainer implements cri.RuntimeService.
func (v *view) CreateContainer(_ context.Context, sandboxID string, config *runtimeapi.ContainerConfig, _ *runtimeapi.PodSandboxConfig) (string, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	s := v.sandboxes[sandboxID]
	if s == nil {
		return "", fmt.Errorf("pod sandbox %q not found", sandboxID)
	}
	id := newID()
	root := filepath.Join(v.dir, id)
	for _, d := range []string{"tmp", "etc"} {
		if err := os.MkdirAll(filepath.Join(root, d), 0o755); err != nil {
			return "", err
		}
	}
	for _, m := range config.Mounts { // what the kubelet has laid out is there, under its path
		if err := link(root, m); err != nil {
			return "", err
		}
	}
	log, err := openLog(filepath.Join(s.config.LogDirectory, config.LogPath))
	if err != nil {
		return "", err
	}
	v.boxes[id] = &box{config: config, sandbox: s, root: root, done: make(chan struct{}), log: log,
		forever: !endsByItself(v.pods[types.UID(s.config.Metadata.Uid)], config.Labels[kubelettypes.KubernetesContainerNameLabel]),
		status: &runtimeapi.ContainerStatus{Id: id, Metadata: config.Metadata, Image: config.Image, ImageRef: imageOf(config.Image.UserSpecifiedImage, config.Image.Image).RepoDigests[0],
			ImageId: config.Image.Image, CreatedAt: time.Now().UnixNano(), State: runtimeapi.ContainerState_CONTAINER_CREATED, Labels: config.Labels,
			Annotations: config.Annotations, LogPath: log.path, Mounts: config.Mounts}}
	return id, nil
}

// StartContainer implements cri.RuntimeService.
func (v *view) StartContainer(_ context.Context, id string) error {
	b, err := v.box(id)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	v.mu.Lock()
	defer v.mu.Unlock()
	b.status.State, b.status.StartedAt = runtimeapi.ContainerState_CONTAINER_RUNNING, time.Now().UnixNano()
	b.stop = func(code int32, reason string) { cancel(stopped{code, reason}) }
	if slices.ContainsFunc(v.dying, func(part string) bool { return strings.Contains(b.config.Image.GetUserSpecifiedImage(), part) }) {
		b.stop(1, "Error")
	}
	go func() {
		defer cancel(nil)
		code := b.main(ctx)
		v.mu.Lock()
		defer v.mu.Unlock()
		var by stopped
		if errors.As(context.Cause(ctx), &by) {
			code = by.code
		}
		b.status.State, b.status.FinishedAt, b.status.ExitCode = runtimeapi.ContainerState_CONTAINER_EXITED, time.Now().UnixNano(), code
		if b.status.Reason = "Completed"; code != 0 {
			b.status.Reason = "Error"
		}
		if by.reason != "" && code != 0 {
			b.status.Reason = by.reason
		}
		close(b.done)
	}()
	return nil
}

// stopped is why a container was ended from outside.
type stopped struct {
	code   int32
	reason string
}

func (s stopped) Error() string { return fmt.Sprintf("%s (exit code %d)", s.reason, s.code) }

// main is what a container runs.
func (b *box) main(ctx context.Context) int32 {
	argv := slices.Concat(b.config.Command, b.config.Args)
	p := program{box: b, out: b.log.stream("stdout"), err: b.log.stream("stderr")}
	p.unknown = func(ctx context.Context, argv []string) int32 {
		what := b.config.Image.GetUserSpecifiedImage()
		if len(argv) > 0 {
			what = strings.Join(argv, " ")
		}
		if !b.forever {
			b.log.write("stdout", what+": done")
			return 0
		}
		m := b.sandbox.config.Metadata
		b.log.write("stdout", fmt.Sprintf("%s: serving as %s/%s", what, m.Namespace, m.Name))
		<-ctx.Done()
		return 0
	}
	return p.run(ctx, argv)
}

// StopContainer implements cri.RuntimeService.
func (v *view) StopContainer(_ context.Context, id string, _ int64) error {
	b, err := v.box(id)
	if err != nil {
		return nil
	}
	v.mu.Lock()
	stop := b.stop
	v.mu.Unlock()
	if stop == nil {
		return nil
	}
	stop(0, "Completed")
	<-b.done
	return nil
}

// RemoveContainer implements cri.RuntimeService.
func (v *view) RemoveContainer(ctx context.Context, id string) error {
	_ = v.StopContainer(ctx, id, 0)
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.boxes[id] != nil {
		v.forgetLocked(id)
	}
	return nil
}

// ListContainers implements cri.RuntimeService.
func (v *view) ListContainers(_ context.Context, f *runtimeapi.ContainerFilter) ([]*runtimeapi.Container, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	var out []*runtimeapi.Container
	for id, b := range v.boxes {
		st, in := b.status, b.sandbox.status.Id
		if b.sandbox.node == v.node && (f.GetId() == "" || f.Id == id) && (f.GetPodSandboxId() == "" || f.PodSandboxId == in) &&
			(f.GetState() == nil || f.State.State == st.State) && has(st.Labels, f.GetLabelSelector()) {
			out = append(out, &runtimeapi.Container{Id: id, PodSandboxId: in, Metadata: st.Metadata, Image: st.Image, ImageRef: st.ImageRef, ImageId: st.ImageId,
				State: st.State, CreatedAt: st.CreatedAt, Labels: st.Labels, Annotations: st.Annotations})
		}
	}
	return out, nil
}

// ContainerStatus implements cri.RuntimeService.
func (v *view) ContainerStatus(_ context.Context, id string, _ bool) (*runtimeapi.ContainerStatusResponse, error) {
	b, err := v.box(id)
	if err != nil {
		return nil, err
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	return &runtimeapi.ContainerStatusResponse{Status: clone(b.status)}, nil
}

// UpdateContainerResources implements cri.RuntimeService.
func (v *view) UpdateContainerResources(context.Context, string, *runtimeapi.ContainerResources) error {
	return nil
}

// UpdatePodSandboxResources implements cri.RuntimeService.
func (v *view) UpdatePodSandboxResources(context.Context, *runtimeapi.UpdatePodSandboxResourcesRequest) (*runtimeapi.UpdatePodSandboxResourcesResponse, error) {
	return &runtimeapi.UpdatePodSandboxResourcesResponse{}, nil
}

// ReopenContainerLog implements cri.RuntimeService.
func (v *view) ReopenContainerLog(_ context.Context, id string) error {
	b, err := v.box(id)
	if err != nil {
		return err
	}
	return b.log.reopen()
}

// ExecSync implements cri.RuntimeService.
func (v *view) ExecSync(ctx context.Context, id string, cmd []string, timeout time.Duration) ([]byte, []byte, error) {
	if timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, timeout)
		defer cancel()
	}
	var out, errOut buffer
	err := v.containers.Exec(ctx, id, cmd, nil, &out, &errOut, false, nil)
	return out.Bytes(), errOut.Bytes(), err
}

// Exec implements cri.RuntimeService.
func (v *view) Exec(_ context.Context, req *runtimeapi.ExecRequest) (*runtimeapi.ExecResponse, error) {
	return v.streams.GetExec(req)
}

// Attach implements cri.RuntimeService.
func (v *view) Attach(_ context.Context, req *runtimeapi.AttachRequest) (*runtimeapi.AttachResponse, error) {
	return v.streams.GetAttach(req)
}

// PortForward implements cri.RuntimeService.
func (v *view) PortForward(_ context.Context, req *runtimeapi.PortForwardRequest) (*runtimeapi.PortForwardResponse, error) {
	return v.streams.GetPortForward(req)
}

// ContainerStats implements cri.RuntimeService.
func (v *view) ContainerStats(_ context.Context, id string) (*runtimeapi.ContainerStats, error) {
	return nil, fmt.Errorf("no stats for container %q", id)
}

// ListContainerStats implements cri.RuntimeService.
func (v *view) ListContainerStats(context.Context, *runtimeapi.ContainerStatsFilter) ([]*runtimeapi.ContainerStats, error) {
	return nil, nil
}

// PodSandboxStats implements cri.RuntimeService.
func (v *view) PodSandboxStats(_ context.Context, id string) (*runtimeapi.PodSandboxStats, error) {
	return nil, fmt.Errorf("no stats for pod sandbox %q", id)
}

// ListPodSandboxStats implements cri.RuntimeService.
func (v *view) ListPodSandboxStats(context.Context, *runtimeapi.PodSandboxStatsFilter) ([]*runtimeapi.PodSandboxStats, error) {
	return nil, nil
}

// imageView is the images of one node.
type imageView struct{ *view }

// ListImages implements cri.ImageManagerService.
func (v *imageView) ListImages(context.Context, *runtimeapi.ImageFilter) ([]*runtimeapi.Image, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	var out []*runtimeapi.Image
	for name := range v.images[v.node] {
		out = append(out, imageOf(name))
	}
	return out, nil
}

// ImageStatus implements cri.ImageManagerService.
func (v *imageView) ImageStatus(_ context.Context, image *runtimeapi.ImageSpec, _ bool) (*runtimeapi.ImageStatusResponse, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for name := range v.images[v.node] {
		if im := imageOf(name); name == image.Image || im.Id == image.Image {
			return &runtimeapi.ImageStatusResponse{Image: im}, nil
		}
	}
	return &runtimeapi.ImageStatusResponse{}, nil
}

// PullImage implements cri.ImageManagerService.
func (v *imageView) PullImage(_ context.Context, image *runtimeapi.ImageSpec, _ *runtimeapi.AuthConfig, _ *runtimeapi.PodSandboxConfig) (string, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if slices.ContainsFunc(v.failing, func(part string) bool { return strings.Contains(image.Image, part) }) {
		return "", fmt.Errorf("rpc error: code = NotFound desc = failed to pull and unpack image %q: failed to resolve reference %q: %s: not found", image.Image, image.Image, image.Image)
	}
	if v.images[v.node] == nil {
		v.images[v.node] = map[string]bool{}
	}
	v.images[v.node][image.Image] = true
	return imageOf(image.Image).Id, nil
}

// RemoveImage implements cri.ImageManagerService.
func (v *imageView) RemoveImage(_ context.Context, image *runtimeapi.ImageSpec) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	maps.DeleteFunc(v.images[v.node], func(name string, _ bool) bool { return name == image.Image || imageOf(name).Id == image.Image })
	return nil
}

// ImageFsInfo implements cri.ImageManagerService.
func (v *imageView) ImageFsInfo(context.Context) (*runtimeapi.ImageFsInfoResponse, error) {
	disk := []*runtimeapi.FilesystemUsage{{Timestamp: time.Now().UnixNano(), FsId: &runtimeapi.FilesystemIdentifier{Mountpoint: "/"},
		UsedBytes: &runtimeapi.UInt64Value{}, InodesUsed: &runtimeapi.UInt64Value{}}}
	return &runtimeapi.ImageFsInfoResponse{ImageFilesystems: disk, ContainerFilesystems: disk}, nil
}

// imageOf is the image of the first of names that is one.
func imageOf(names ...string) *runtimeapi.Image {
	name := names[0]
	for _, n := range names {
		if n != "" {
			name = n
			break
		}
	}
	sum := sha256.Sum256([]byte(name))
	digest := "sha256:" + hex.EncodeToString(sum[:])
	repo := name
	if i := strings.LastIndexAny(repo, ":@/"); i >= 0 && repo[i] != '/' {
		repo = strings.TrimSuffix(repo[:i], "@sha256")
	}
	return &runtimeapi.Image{Id: digest, RepoTags: []string{name}, RepoDigests: []string{repo + "@" + digest}, Size: 20 << 20, Spec: &runtimeapi.ImageSpec{Image: name}}
}

func has(labels, selector map[string]string) bool {
	for k, v := range selector {
		if labels[k] != v {
			return false
		}
	}
	return true
}

// newID is as random as a container's, and as long.
func newID() string {
	sum := sha256.Sum256([]byte(rand.String(32)))
	return hex.EncodeToString(sum[:])
}

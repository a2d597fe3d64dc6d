package images

import (
	"context"
	"fmt"
	"io/fs"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/retry"
)

// Memory is what the agent has to remember and its pod's disk forgets, in the ConfigMap
// MemoryName. It implements software.Store; its calls end after some seconds.
type Memory struct {
	Client    kubernetes.Interface
	Namespace string
}

const memoryTimeout = 15 * time.Second

// Load implements software.Store.
func (m Memory) Load(name string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(context.Background(), memoryTimeout)
	defer cancel()
	cm, err := m.Client.CoreV1().ConfigMaps(m.Namespace).Get(ctx, MemoryName, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("the ConfigMap %s/%s: %w", m.Namespace, MemoryName, err)
	}
	text, ok := cm.Data[name]
	if !ok {
		return nil, fmt.Errorf("%s in the ConfigMap %s/%s: %w", name, m.Namespace, MemoryName, fs.ErrNotExist)
	}
	return []byte(text), nil
}

// Save implements software.Store; b is text.
func (m Memory) Save(name string, b []byte) error {
	ctx, cancel := context.WithTimeout(context.Background(), memoryTimeout)
	defer cancel()
	maps := m.Client.CoreV1().ConfigMaps(m.Namespace)
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		cm, err := maps.Get(ctx, MemoryName, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if had, ok := cm.Data[name]; ok && had == string(b) {
			return nil
		}
		if cm.Data == nil {
			cm.Data = map[string]string{}
		}
		cm.Data[name] = string(b)
		_, err = maps.Update(ctx, cm, metav1.UpdateOptions{FieldManager: manager})
		return err
	})
	if err != nil {
		return fmt.Errorf("the ConfigMap %s/%s: %w", m.Namespace, MemoryName, err)
	}
	return nil
}

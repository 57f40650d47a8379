package main

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
)

// observer keeps what an informer tells its handlers, for each object.
type observer struct {
	mu       sync.Mutex
	seen     map[string][]string
	problems []string
}

func newObserver() *observer { return &observer{seen: map[string][]string{}} }

// OnAdd is told of a new object, or of one that was there.
func (o *observer) OnAdd(object any, _ bool) { o.note(object, "add %s") }

// OnUpdate is told of a change; of none where an informer lists again.
func (o *observer) OnUpdate(before, after any) {
	old, current := accessor(before), accessor(after)
	if old.GetResourceVersion() == current.GetResourceVersion() {
		return
	}
	if old.GetUID() != current.GetUID() {
		o.problem("another object took the place of %s without a delete", current.GetName())
	}
	o.note(after, "update %s")
}

// OnDelete is told of an object's end.
func (o *observer) OnDelete(object any) {
	if _, unknown := object.(cache.DeletedFinalStateUnknown); unknown {
		o.problem("the last state of an object is unknown: %v", object)
		return
	}
	o.note(object, "delete")
}

func (o *observer) note(object any, format string) {
	found := accessor(object)
	line := format
	if strings.Contains(format, "%s") {
		line = fmt.Sprintf(format, found.GetResourceVersion())
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.seen[found.GetName()] = append(o.seen[found.GetName()], line)
}

func (o *observer) problem(format string, args ...any) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.problems = append(o.problems, fmt.Sprintf(format, args...))
}

// compare tells how what was seen differs from what should have been; "" is no difference.
func (o *observer) compare(history map[string][]string) string {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.problems) > 0 {
		return strings.Join(o.problems, "; ")
	}
	for name, wanted := range history {
		if !slices.Equal(o.seen[name], wanted) {
			return fmt.Sprintf("of %s was seen %v, not %v", name, o.seen[name], wanted)
		}
	}
	for name, seen := range o.seen {
		if len(history[name]) == 0 && len(seen) > 0 {
			return fmt.Sprintf("of %s was seen %v", name, seen)
		}
	}
	return ""
}

// sees waits until the observer has seen exactly that.
func (c *check) sees(what string, o *observer, history map[string][]string) {
	difference := ""
	defer func() {
		if difference != "" {
			c.details["difference"] = difference
		}
	}()
	c.eventually(what, func() bool {
		difference = o.compare(history)
		return difference == ""
	})
}

func accessor(object any) metav1.Object {
	found, err := meta.Accessor(object)
	if err != nil {
		panic(err)
	}
	return found
}

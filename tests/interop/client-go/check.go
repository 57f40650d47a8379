package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	apiextensions "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
)

// An informer waits up to a minute after a failure before it tries again.
const eventuallyTimeout = 150 * time.Second

var (
	configMapsResource = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	podsResource       = schema.GroupVersionResource{Version: "v1", Resource: "pods"}
	actionsVersion     = schema.GroupVersion{Group: "actions.github.com", Version: "v1alpha1"}
)

// clients are the ways in which programs speak to the server.
type clients struct {
	typed      kubernetes.Interface
	dynamic    dynamic.Interface
	metadata   metadata.Interface
	extensions apiextensions.Interface
}

// check is one run of one check: what it works with, and where it works.
type check struct {
	clients
	ctx         context.Context
	config      *rest.Config
	requests    *recorder
	namespace   string
	watchList   bool
	logs        bool
	accounts    bool
	definitions []unstructured.Unstructured
	samples     []map[string]any
	details     map[string]any
	input       *bufio.Reader
}

type (
	failure string
	skip    string
)

// fail ends the check. Like all methods that may do so, it is for the check's own goroutine.
func (c *check) fail(format string, args ...any) { panic(failure(fmt.Sprintf(format, args...))) }

func (c *check) skip(reason string) { panic(skip(reason)) }

func (c *check) must(err error, format string, args ...any) {
	if err != nil {
		c.fail("%s: %v (%s)", fmt.Sprintf(format, args...), err, apierrors.ReasonForError(err))
	}
}

func (c *check) expect(ok bool, format string, args ...any) {
	if !ok {
		c.fail(format, args...)
	}
}

// refused expects an error of the kind that is tells.
func (c *check) refused(is func(error) bool, err error, format string, args ...any) {
	if !is(err) {
		c.fail("%s, unexpectedly: %v (%s)", fmt.Sprintf(format, args...), err, apierrors.ReasonForError(err))
	}
}

// eventually waits until done tells so.
func (c *check) eventually(what string, done func() bool) {
	err := wait.PollUntilContextTimeout(c.ctx, 20*time.Millisecond, eventuallyTimeout, true,
		func(context.Context) (bool, error) { return done(), nil })
	if err != nil {
		c.fail("not within %v: %s", eventuallyTimeout, what)
	}
}

// ask has something done on the server's side, and waits for it.
func (c *check) ask(what string) {
	c.say(map[string]string{"ask": what})
	_, err := c.input.ReadString('\n')
	c.must(err, "asking for %q", what)
}

func (c *check) say(what any) {
	line, err := json.Marshal(what)
	if err != nil {
		panic(err)
	}
	fmt.Println(string(line))
}

func (c *check) clientsFor(config *rest.Config) clients {
	typed, err := kubernetes.NewForConfig(config)
	c.must(err, "the typed client")
	untyped, err := dynamic.NewForConfig(config)
	c.must(err, "the dynamic client")
	meta, err := metadata.NewForConfig(config)
	c.must(err, "the metadata client")
	extensions, err := apiextensions.NewForConfig(config)
	c.must(err, "the client for definitions")
	return clients{typed, untyped, meta, extensions}
}

// together runs count workers at once and fails with the first error of any.
func (c *check) together(count int, work func(worker int) error) {
	errs := make([]error, count)
	var group sync.WaitGroup
	for worker := range count {
		group.Go(func() { errs[worker] = work(worker) })
	}
	group.Wait()
	for worker, err := range errs {
		c.must(err, "worker %d", worker)
	}
}

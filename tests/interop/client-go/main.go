// Command client-go holds an API server to what the programs written with k8s.io/client-go expect of one, and says
// what it saw, one line of JSON for each check.
//
//	client-go -kubeconfig FILE [flags] <check>...
//	client-go -list | -fields
//
// Where a check needs something done on the server's side it writes {"ask": "..."} and waits for a line on its
// standard input. It exits with 1 when a check fails.
package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
)

const timeout = 9 * time.Minute

var checks = []struct {
	name string
	run  func(*check)
}{
	{"version and discovery", (*check).discovery},
	{"typed objects", (*check).typedObjects},
	{"dynamic objects", (*check).dynamicObjects},
	{"pods", (*check).pods},
	{"errors", (*check).errors},
	{"concurrent updates", (*check).concurrentUpdates},
	{"patches", (*check).patches},
	{"custom resources", (*check).customResources},
	{"finalizers", (*check).finalizers},
	{"collections", (*check).collections},
	{"garbage collection", (*check).garbageCollection},
	{"end of a namespace", (*check).endOfNamespace},
	{"informers", (*check).informers},
	{"selective informers", (*check).selectiveInformers},
	{"dynamic informers", (*check).dynamicInformers},
	{"informers and cuts", (*check).informersAndCuts},
	{"random writes", (*check).randomWrites},
	{"paging", (*check).paging},
	{"watches", (*check).watches},
	{"lost history", (*check).lostHistory},
	{"leader election", (*check).leaderElection},
	{"core events", (*check).coreEvents},
	{"newer events", (*check).newerEvents},
	{"pod logs", (*check).podLogs},
}

type result struct {
	Check   string         `json:"check"`
	Passed  bool           `json:"passed"`
	Skipped string         `json:"skipped,omitempty"`
	Error   string         `json:"error,omitempty"`
	Details map[string]any `json:"details,omitempty"`
}

func main() {
	if err := program(); err != nil {
		fmt.Fprintln(os.Stderr, "client-go:", err)
		os.Exit(1)
	}
}

func program() error {
	klog.InitFlags(nil)
	kubeconfig := flag.String("kubeconfig", "", "the `file` that says where the server is")
	definitions := flag.String("crds", "", "a `file` with a List of the definitions of custom resources to install")
	samples := flag.String("samples", "", "a `file` with a list of objects, one of each of their kinds")
	watchList := flag.Bool("watch-list", true, "informers begin with a streaming list")
	logs := flag.Bool("logs", false, "the server has the logs of pods")
	accounts := flag.Bool("accounts", false, "the server makes a service account in each namespace, which pods need")
	contentType := flag.String("content-type", "", "how bodies are sent, instead of as client-go prefers")
	list := flag.Bool("list", false, "only print the names of the checks")
	fields := flag.Bool("fields", false, "only print the table of the fields of protobuf messages")
	flag.Parse()
	if *fields {
		return printFields()
	}
	if *list {
		for _, known := range checks {
			fmt.Println(known.name)
		}
		return nil
	}
	// client-go reads its feature gates from the environment, when it first needs one.
	if err := os.Setenv("KUBE_FEATURE_WatchListClient", fmt.Sprint(*watchList)); err != nil {
		return err
	}
	config, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	if err != nil {
		return err
	}
	config.ContentType = *contentType
	// The client's own limit would only slow the checks down.
	config.QPS = -1
	base := check{
		config:    config,
		watchList: *watchList,
		logs:      *logs,
		accounts:  *accounts,
		input:     bufio.NewReader(os.Stdin),
	}
	if base.definitions, err = readDefinitions(*definitions); err != nil {
		return err
	}
	if base.samples, err = readSamples(*samples); err != nil {
		return err
	}
	failed := false
	for _, name := range flag.Args() {
		outcome := base.carryOut(name)
		failed = failed || !outcome.Passed
		base.say(outcome)
	}
	if failed {
		return errors.New("not all checks passed")
	}
	return nil
}

// carryOut runs the check of that name in a namespace of its own.
func (base *check) carryOut(name string) (outcome result) {
	c := *base
	c.details = map[string]any{}
	outcome.Check = name
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	c.ctx = ctx
	defer func() {
		outcome.Details = c.details
		switch problem := recover().(type) {
		case nil:
			outcome.Passed = true
		case failure:
			outcome.Error = string(problem)
		case skip:
			outcome.Passed, outcome.Skipped = true, string(problem)
		default:
			panic(problem)
		}
	}()
	for _, known := range checks {
		if known.name == name {
			c.connect()
			defer c.cleanUp()
			known.run(&c)
			return outcome
		}
	}
	c.fail("there is no such check")
	return outcome
}

// connect makes the clients and the namespace of a check.
func (c *check) connect() {
	c.requests = &recorder{}
	c.config = rest.CopyConfig(c.config)
	c.config.WrapTransport = c.requests.wrap
	c.clients = c.clientsFor(c.config)
	namespace, err := c.typed.CoreV1().Namespaces().Create(c.ctx, newNamespace(), metav1.CreateOptions{})
	c.must(err, "creating the namespace")
	c.namespace = namespace.Name
	if c.accounts {
		c.eventually("the namespace's service account", func() bool {
			_, err := c.typed.CoreV1().ServiceAccounts(c.namespace).Get(c.ctx, "default", metav1.GetOptions{})
			return err == nil
		})
	}
}

func (c *check) cleanUp() {
	err := c.typed.CoreV1().Namespaces().Delete(context.WithoutCancel(c.ctx), c.namespace, metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		fmt.Fprintln(os.Stderr, "client-go: the namespace stays:", err)
	}
}

func readDefinitions(path string) ([]unstructured.Unstructured, error) {
	if path == "" {
		return nil, nil
	}
	var list unstructured.UnstructuredList
	content, err := os.ReadFile(path)
	if err == nil {
		err = list.UnmarshalJSON(content)
	}
	return list.Items, err
}

func readSamples(path string) ([]map[string]any, error) {
	if path == "" {
		return nil, nil
	}
	var objects []map[string]any
	content, err := os.ReadFile(path)
	if err == nil {
		err = utiljson.Unmarshal(content, &objects)
	}
	return objects, err
}

package main

import (
	"fmt"
	"net/url"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/tools/cache"
)

// start runs an informer until the check ends, and waits until it has what there is.
func (c *check) start(informer cache.SharedIndexInformer) *observer {
	watcher := newObserver()
	_, err := informer.AddEventHandler(watcher)
	c.must(err, "adding a handler")
	go informer.RunWithContext(c.ctx)
	c.eventually("an informer's first list", informer.HasSynced)
	return watcher
}

func (c *check) factory(client kubernetes.Interface, tweak func(*metav1.ListOptions)) informers.SharedInformerFactory {
	return informers.NewSharedInformerFactoryWithOptions(
		client, 0, informers.WithNamespace(c.namespace), informers.WithTweakListOptions(tweak))
}

// author writes secrets and keeps what has become of them.
type author struct {
	*check
	history map[string][]string
}

func (a *author) create(name string, labels map[string]string) *corev1.Secret {
	created, err := a.typed.CoreV1().Secrets(a.namespace).Create(a.ctx, newSecret(name, "0", labels), metav1.CreateOptions{})
	a.must(err, "creating %s", name)
	a.history[name] = append(a.history[name], "add "+created.ResourceVersion)
	return created
}

func (a *author) update(name string, value int) {
	client := a.typed.CoreV1().Secrets(a.namespace)
	patch := []byte(fmt.Sprintf(`{"stringData":{"value":"%d"}}`, value))
	patched, err := client.Patch(a.ctx, name, types.MergePatchType, patch, metav1.PatchOptions{})
	a.must(err, "updating %s", name)
	a.history[name] = append(a.history[name], "update "+patched.ResourceVersion)
}

func (a *author) delete(name string) {
	a.must(a.typed.CoreV1().Secrets(a.namespace).Delete(a.ctx, name, metav1.DeleteOptions{}), "deleting %s", name)
	a.history[name] = append(a.history[name], "delete")
}

func (c *check) informers() {
	writer := &author{c, map[string][]string{}}
	for i := range 5 {
		writer.create(fmt.Sprintf("early-%d", i), nil)
	}
	factory := c.factory(c.typed, nil)
	secrets := factory.Core().V1().Secrets()
	watcher := c.start(secrets.Informer())
	c.expect(watcher.compare(writer.history) == "", "after its first list: %s", watcher.compare(writer.history))
	streams := c.requests.count(isStreamingList)
	c.expect((streams > 0) == c.watchList, "%d streaming lists", streams)
	lists := c.requests.count(func(path string, query url.Values) bool {
		return strings.HasSuffix(path, "/secrets") && query.Get("watch") == "" && query.Get("resourceVersion") != ""
	})
	c.expect((lists == 0) == c.watchList, "%d lists of an informer", lists)

	for i := range 40 {
		name := fmt.Sprintf("late-%d", i%10)
		switch i / 10 {
		case 0:
			writer.create(name, nil)
		case 1, 2:
			writer.update(name, i)
		default:
			writer.delete(name)
		}
	}
	writer.create("late-3", nil)
	writer.delete("early-0")
	c.sees("an informer has seen every change", watcher, writer.history)
	found, err := secrets.Lister().Secrets(c.namespace).List(labels.Everything())
	c.must(err, "listing from the cache")
	c.expect(len(found) == 5, "%d objects in the cache", len(found))
	live, err := c.typed.CoreV1().Secrets(c.namespace).Get(c.ctx, "late-3", metav1.GetOptions{})
	c.must(err, "getting")
	cached, err := secrets.Lister().Secrets(c.namespace).Get("late-3")
	c.must(err, "getting from the cache")
	c.expect(equality.Semantic.DeepEqual(live, cached), "cached %+v, not %+v", cached, live)
}

// selectiveInformers see objects come and go as they begin and cease to match.
func (c *check) selectiveInformers() {
	pick := map[string]string{"pick": "yes"}
	writer := &author{c, map[string][]string{}}
	writer.create("early", pick)
	c.typedSecret("ignored", nil)
	byLabel := c.factory(c.typed, func(options *metav1.ListOptions) { options.LabelSelector = "pick=yes" })
	watcher := c.start(byLabel.Core().V1().Secrets().Informer())
	byName := c.factory(c.typed, func(options *metav1.ListOptions) { options.FieldSelector = "metadata.name=named" })
	named := c.start(byName.Core().V1().Secrets().Informer())
	byNode := c.factory(c.typed, func(options *metav1.ListOptions) {
		options.FieldSelector = "spec.nodeName=node-1,status.phase!=Succeeded"
	})
	onNode := c.start(byNode.Core().V1().Pods().Informer())

	label := func(name, patch string) string {
		patched, err := c.typed.CoreV1().Secrets(c.namespace).Patch(
			c.ctx, name, types.MergePatchType, []byte(`{"metadata":{"labels":`+patch+`}}`), metav1.PatchOptions{})
		c.must(err, "labelling %s", name)
		return patched.ResourceVersion
	}
	writer.update("early", 1)
	writer.history["ignored"] = append(writer.history["ignored"], "add "+label("ignored", `{"pick":"yes"}`))
	writer.update("ignored", 2)
	label("ignored", `{"pick":"no"}`)
	writer.history["ignored"] = append(writer.history["ignored"], "delete")
	writer.history["ignored"] = append(writer.history["ignored"], "add "+label("ignored", `{"pick":"yes"}`))
	label("early", `null`)
	writer.history["early"] = append(writer.history["early"], "delete")
	writer.delete("ignored")
	c.sees("an informer with a label selector has seen every change", watcher, writer.history)

	other := &author{c, map[string][]string{}}
	other.create("named", nil)
	c.typedSecret("unnamed", nil)
	other.update("named", 1)
	other.delete("named")
	c.sees("an informer with a name has seen every change", named, other.history)
	c.sees("an informer of a node's pods has seen every change", onNode, c.podOnNode())
}

func (c *check) typedSecret(name string, labels map[string]string) {
	_, err := c.typed.CoreV1().Secrets(c.namespace).Create(c.ctx, newSecret(name, "0", labels), metav1.CreateOptions{})
	c.must(err, "creating %s", name)
}

// podOnNode leads a pod through its life and returns what the informer of its node should see of it.
func (c *check) podOnNode() map[string][]string {
	client := c.typed.CoreV1().Pods(c.namespace)
	_, err := client.Create(c.ctx, newPod("runner"), metav1.CreateOptions{})
	c.must(err, "creating a pod")
	c.must(client.Bind(c.ctx, &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{Name: "runner"}, Target: corev1.ObjectReference{Name: "node-1"},
	}, metav1.CreateOptions{}), "binding")
	bound, err := client.Get(c.ctx, "runner", metav1.GetOptions{})
	c.must(err, "getting")
	history := []string{"add " + bound.ResourceVersion}
	for _, phase := range []corev1.PodPhase{corev1.PodRunning, corev1.PodSucceeded} {
		patch := []byte(fmt.Sprintf(`{"status":{"phase":"%s"}}`, phase))
		patched, err := client.Patch(c.ctx, "runner", types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
		c.must(err, "its phase")
		if phase == corev1.PodRunning {
			history = append(history, "update "+patched.ResourceVersion)
		}
	}
	return map[string][]string{"runner": append(history, "delete")}
}

func (c *check) dynamicInformers() {
	c.install()
	resource := actionsVersion.WithResource("ephemeralrunners")
	client := c.dynamic.Resource(resource).Namespace(c.namespace)
	history := map[string][]string{}
	create := func(name string) {
		created, err := client.Create(c.ctx, custom(c.sampleOf("EphemeralRunner"), name), metav1.CreateOptions{})
		c.must(err, "creating %s", name)
		history[name] = append(history[name], "add "+created.GetResourceVersion())
	}
	create("first")
	untyped := dynamicinformer.NewFilteredDynamicSharedInformerFactory(c.dynamic, 0, c.namespace, nil).ForResource(resource)
	watcher := c.start(untyped.Informer())
	slim := metadatainformer.NewFilteredSharedInformerFactory(c.metadata, 0, c.namespace, nil).ForResource(resource)
	slimWatcher := c.start(slim.Informer())
	streams := c.requests.count(isStreamingList)
	c.expect(streams == 2 || !c.watchList && streams == 0, "%d streaming lists", streams)
	create("second")
	for _, name := range []string{"first", "second"} {
		for number, subresource := range [][]string{nil, {"status"}} {
			patch := fmt.Sprintf(`{"spec":{"runnerScaleSetId":%d},"status":{"phase":"Running","runnerId":7}}`, 100+number)
			patched, err := client.Patch(c.ctx, name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}, subresource...)
			c.must(err, "patching %s", name)
			history[name] = append(history[name], "update "+patched.GetResourceVersion())
		}
	}
	c.must(client.Delete(c.ctx, "second", metav1.DeleteOptions{}), "deleting")
	history["second"] = append(history["second"], "delete")
	c.sees("a dynamic informer has seen every change", watcher, history)
	c.sees("a metadata informer has seen every change", slimWatcher, history)
	live, err := client.Get(c.ctx, "first", metav1.GetOptions{})
	c.must(err, "getting")
	cached, err := untyped.Lister().ByNamespace(c.namespace).Get("first")
	c.must(err, "getting from the cache")
	c.expect(equality.Semantic.DeepEqual(live, cached), "cached %v, not %v", cached, live)
}

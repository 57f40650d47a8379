package main

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
)

const finalizer = "example.com/hold"

func (c *check) finalizers() {
	client := c.typed.CoreV1().ConfigMaps(c.namespace)
	held := newConfigMap("held", nil)
	held.Finalizers = []string{finalizer}
	created, err := client.Create(c.ctx, held, metav1.CreateOptions{})
	c.must(err, "creating")
	events, err := client.Watch(c.ctx, metav1.SingleObject(created.ObjectMeta))
	c.must(err, "watching")
	defer events.Stop()
	c.must(client.Delete(c.ctx, "held", metav1.DeleteOptions{}), "deleting")
	ending, err := client.Get(c.ctx, "held", metav1.GetOptions{})
	c.must(err, "getting what is held")
	c.expect(ending.DeletionTimestamp != nil && *ending.DeletionGracePeriodSeconds == 0, "it is %+v", ending.ObjectMeta)
	c.must(client.Delete(c.ctx, "held", metav1.DeleteOptions{}), "deleting again")
	again, err := client.Get(c.ctx, "held", metav1.GetOptions{})
	c.must(err, "getting what is held")
	c.expect(again.ResourceVersion == ending.ResourceVersion, "deleting again made version %s", again.ResourceVersion)
	_, err = client.Create(c.ctx, newConfigMap("held", nil), metav1.CreateOptions{})
	c.refused(apierrors.IsAlreadyExists, err, "creating what is being deleted")
	more := ending.DeepCopy()
	more.Finalizers = append(more.Finalizers, "example.com/late")
	_, err = client.Update(c.ctx, more, metav1.UpdateOptions{})
	c.refused(apierrors.IsInvalid, err, "holding what is being deleted")
	revived := ending.DeepCopy()
	revived.DeletionTimestamp = nil
	kept, err := client.Update(c.ctx, revived, metav1.UpdateOptions{})
	c.must(err, "an update without the time of deletion")
	c.expect(kept.DeletionTimestamp.Equal(ending.DeletionTimestamp), "deleted at %v", kept.DeletionTimestamp)
	patch := fmt.Sprintf(`{"metadata":{"finalizers":null,"resourceVersion":"%s"}}`, ending.ResourceVersion)
	last, err := client.Patch(c.ctx, "held", types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	c.must(err, "letting go")
	c.expect(len(last.Finalizers) == 0 && last.DeletionTimestamp != nil, "after letting go: %+v", last.ObjectMeta)
	c.details["versions"] = []string{ending.ResourceVersion, last.ResourceVersion}
	_, err = client.Get(c.ctx, "held", metav1.GetOptions{})
	c.refused(apierrors.IsNotFound, err, "getting what is deleted")
	marked := c.next(events, func(watch.Event) bool { return true })
	gone := c.next(events, func(watch.Event) bool { return true })
	c.expect(marked.Type == watch.Modified && gone.Type == watch.Deleted, "seen: %v, then %v", marked.Type, gone.Type)
	c.details["watched"] = []string{accessor(marked.Object).GetResourceVersion(), accessor(gone.Object).GetResourceVersion()}
	c.details["held"] = accessor(gone.Object).GetFinalizers()
}

func (c *check) collections() {
	client := c.typed.CoreV1().ConfigMaps(c.namespace)
	for i := range 12 {
		object := labelled(fmt.Sprintf("object-%d", i), map[string]string{"third": fmt.Sprint(i % 3)})
		if i == 5 {
			object.Finalizers = []string{finalizer}
		}
		_, err := client.Create(c.ctx, object, metav1.CreateOptions{})
		c.must(err, "creating")
	}
	left := func() map[string]corev1.ConfigMap {
		list, err := client.List(c.ctx, metav1.ListOptions{LabelSelector: "third"})
		c.must(err, "listing")
		found := map[string]corev1.ConfigMap{}
		for _, item := range list.Items {
			found[item.Name] = item
		}
		return found
	}
	remove := func(options metav1.ListOptions) {
		c.must(client.DeleteCollection(c.ctx, metav1.DeleteOptions{}, options), "deleting %+v", options)
	}
	remove(metav1.ListOptions{LabelSelector: "third=0"})
	c.expect(len(left()) == 8, "left: %v", left())
	remove(metav1.ListOptions{FieldSelector: "metadata.name=object-1"})
	_, isThere := left()["object-1"]
	c.expect(len(left()) == 7 && !isThere, "left: %v", left())
	remove(metav1.ListOptions{LabelSelector: "third notin (1)"})
	held := left()["object-5"]
	c.expect(len(left()) == 4 && held.DeletionTimestamp != nil, "left: %v", left())
	_, err := client.Patch(c.ctx, "object-5", types.MergePatchType, []byte(`{"metadata":{"finalizers":[]}}`), metav1.PatchOptions{})
	c.must(err, "letting go")
	remove(metav1.ListOptions{LabelSelector: "third"})
	c.expect(len(left()) == 0, "left: %v", left())
}

func (c *check) garbageCollection() {
	c.install()
	c.ask("notice new kinds")
	maps, secrets := c.typed.CoreV1().ConfigMaps(c.namespace), c.typed.CoreV1().Secrets(c.namespace)
	runners := c.dynamic.Resource(actionsVersion.WithResource("ephemeralrunners")).Namespace(c.namespace)
	first, err := maps.Create(c.ctx, newConfigMap("first", nil), metav1.CreateOptions{})
	c.must(err, "creating an owner")
	second, err := runners.Create(c.ctx, custom(c.sampleOf("EphemeralRunner"), "second"), metav1.CreateOptions{})
	c.must(err, "creating an owner")
	own := func(name string, references ...metav1.OwnerReference) {
		owned := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name, OwnerReferences: references}}
		_, err := secrets.Create(c.ctx, owned, metav1.CreateOptions{})
		c.must(err, "creating %s", name)
	}
	gone := func(name string) bool {
		_, err := secrets.Get(c.ctx, name, metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	}
	own("of-first", ownedBy("v1", "ConfigMap", first))
	own("of-second", ownedBy(actionsVersion.String(), "EphemeralRunner", second))
	own("of-both", ownedBy("v1", "ConfigMap", first), ownedBy(actionsVersion.String(), "EphemeralRunner", second))
	own("of-none")
	// Chained: a map of the first, and a secret of that map.
	middle := newConfigMap("middle", nil)
	middle.OwnerReferences = []metav1.OwnerReference{ownedBy("v1", "ConfigMap", first)}
	middle, err = maps.Create(c.ctx, middle, metav1.CreateOptions{})
	c.must(err, "creating a chain")
	own("of-middle", ownedBy("v1", "ConfigMap", middle))

	background := metav1.DeletePropagationBackground
	c.must(maps.Delete(c.ctx, "first", metav1.DeleteOptions{PropagationPolicy: &background}), "deleting the first owner")
	c.eventually("what the first owned alone is gone", func() bool { return gone("of-first") && gone("of-middle") })
	c.eventually("the reference to the first is gone", func() bool {
		both, err := secrets.Get(c.ctx, "of-both", metav1.GetOptions{})
		c.must(err, "what both owned")
		return len(both.OwnerReferences) == 1 && both.OwnerReferences[0].Name == "second"
	})
	c.must(runners.Delete(c.ctx, "second", metav1.DeleteOptions{}), "deleting the second owner")
	c.eventually("what the second owned is gone", func() bool { return gone("of-second") && gone("of-both") })
	never := ownedBy("v1", "ConfigMap", first)
	own("of-nobody", never)
	c.eventually("what belongs to what never was is gone", func() bool { return gone("of-nobody") })
	c.expect(!gone("of-none"), "what nobody owned is gone too")
}

func (c *check) sampleOf(kind string) map[string]any {
	for _, sample := range c.samples {
		if sample["kind"] == kind {
			return sample
		}
	}
	c.fail("there is no sample of a %s", kind)
	return nil
}

func (c *check) endOfNamespace() {
	namespaces, maps := c.typed.CoreV1().Namespaces(), c.typed.CoreV1().ConfigMaps(c.namespace)
	held := newConfigMap("held", nil)
	held.Finalizers = []string{finalizer}
	_, err := maps.Create(c.ctx, held, metav1.CreateOptions{})
	c.must(err, "creating")
	_, err = maps.Create(c.ctx, newConfigMap("free", nil), metav1.CreateOptions{})
	c.must(err, "creating")
	c.must(namespaces.Delete(c.ctx, c.namespace, metav1.DeleteOptions{}), "deleting the namespace")
	ending, err := namespaces.Get(c.ctx, c.namespace, metav1.GetOptions{})
	c.must(err, "getting the namespace")
	c.expect(ending.Status.Phase == corev1.NamespaceTerminating && ending.DeletionTimestamp != nil, "it is %+v", ending)
	_, err = maps.Create(c.ctx, newConfigMap("late", nil), metav1.CreateOptions{})
	c.refused(apierrors.IsForbidden, err, "creating in what is ending")
	c.expect(apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause), "its causes: %v", err)
	c.eventually("the free one is gone, the held one is marked", func() bool {
		_, err := maps.Get(c.ctx, "free", metav1.GetOptions{})
		found, heldErr := maps.Get(c.ctx, "held", metav1.GetOptions{})
		return apierrors.IsNotFound(err) && heldErr == nil && found.DeletionTimestamp != nil
	})
	_, err = namespaces.Get(c.ctx, c.namespace, metav1.GetOptions{})
	c.must(err, "getting the namespace of what is held")
	_, err = maps.Patch(c.ctx, "held", types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
	c.must(err, "letting go")
	c.eventually("the namespace is gone", func() bool {
		_, err := namespaces.Get(c.ctx, c.namespace, metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})
}

package main

import (
	"context"
	"fmt"
	"net/url"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/pager"
	watchtools "k8s.io/client-go/tools/watch"
	"k8s.io/utils/ptr"
)

const pagedObjects = 50

// next returns the next event of a watch that is wanted.
func (c *check) next(events watch.Interface, wanted func(watch.Event) bool) watch.Event {
	ctx, cancel := context.WithTimeout(c.ctx, eventuallyTimeout)
	defer cancel()
	for {
		select {
		case event, open := <-events.ResultChan():
			c.expect(open, "the watch has ended")
			if wanted(event) {
				return event
			}
		case <-ctx.Done():
			c.fail("the watch says nothing")
		}
	}
}

func ofType(wanted watch.EventType) func(watch.Event) bool {
	return func(event watch.Event) bool { return event.Type == wanted }
}

func (c *check) paging() {
	client := c.typed.CoreV1().Secrets(c.namespace)
	for i := range pagedObjects {
		c.typedSecret(fmt.Sprintf("object-%02d", i), map[string]string{"half": fmt.Sprint(i % 2)})
	}
	first, err := client.List(c.ctx, metav1.ListOptions{Limit: 7})
	c.must(err, "the first page")
	c.expect(len(first.Items) == 7 && first.Continue != "", "the first page has %d", len(first.Items))
	c.expect(ptr.Deref(first.RemainingItemCount, 0) == pagedObjects-7, "%d remain", ptr.Deref(first.RemainingItemCount, 0))
	selected, err := client.List(c.ctx, metav1.ListOptions{Limit: 7, LabelSelector: "half=1"})
	c.must(err, "the first page of half of them")
	c.expect(len(selected.Items) == 7 && selected.RemainingItemCount == nil, "it has %d", len(selected.Items))

	// What is written between the pages isn't seen on them.
	c.typedSecret("object-10-a", nil)
	c.must(client.Delete(c.ctx, "object-20", metav1.DeleteOptions{}), "deleting")
	names := []string{}
	for _, item := range first.Items {
		names = append(names, item.Name)
	}
	for token := first.Continue; token != ""; {
		page, err := client.List(c.ctx, metav1.ListOptions{Limit: 7, Continue: token})
		c.must(err, "a page")
		c.expect(page.ResourceVersion == first.ResourceVersion, "a page of version %s", page.ResourceVersion)
		for _, item := range page.Items {
			names = append(names, item.Name)
		}
		token = page.Continue
	}
	c.expect(len(names) == pagedObjects, "%d objects on all pages", len(names))
	for i, name := range names {
		c.expect(name == fmt.Sprintf("object-%02d", i), "object %d is %s", i, name)
	}
	exact, err := client.List(c.ctx, metav1.ListOptions{
		ResourceVersion: first.ResourceVersion, ResourceVersionMatch: metav1.ResourceVersionMatchExact,
	})
	c.must(err, "a list of that version")
	c.expect(len(exact.Items) == pagedObjects, "it has %d", len(exact.Items))
	count := 0
	pages := pager.New(func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
		return client.List(ctx, options)
	})
	pages.PageSize = 9
	err = pages.EachListItem(c.ctx, metav1.ListOptions{LabelSelector: "half=0"}, func(runtime.Object) error { count++; return nil })
	c.must(err, "all pages")
	c.expect(count == pagedObjects/2-1, "%d objects of one half", count)
	c.pagedReflector()
}

func (c *check) pagedReflector() {
	requests := &recorder{}
	reader := c.clientsFor(newNetwork().through(c.config, requests))
	lists := cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			// From the version 0 the real server gives all at once.
			options.ResourceVersion = ""
			return reader.typed.CoreV1().Secrets(c.namespace).List(ctx, options)
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			return reader.typed.CoreV1().Secrets(c.namespace).Watch(ctx, options)
		},
	}, reader.typed)
	store := cache.NewStore(cache.MetaNamespaceKeyFunc)
	reflector := cache.NewReflectorWithOptions(lists, &corev1.Secret{}, store, cache.ReflectorOptions{})
	reflector.WatchListPageSize = 10
	go reflector.RunWithContext(c.ctx)
	c.eventually("a reflector that pages has all", func() bool { return len(store.List()) == pagedObjects })
	pages := requests.count(func(_ string, query url.Values) bool { return query.Get("limit") == "10" })
	c.expect(pages == pagedObjects/10 || c.watchList && requests.count(isStreamingList) == 1, "%d pages", pages)
	c.typedSecret("another", nil)
	c.eventually("a reflector that pages goes on", func() bool { return len(store.List()) == pagedObjects+1 })
}

func (c *check) watches() {
	client := c.typed.CoreV1().Secrets(c.namespace)
	c.typedSecret("first", nil)
	list, err := client.List(c.ctx, metav1.ListOptions{})
	c.must(err, "listing")
	c.typedSecret("second", nil)
	events, err := client.Watch(c.ctx, metav1.ListOptions{ResourceVersion: list.ResourceVersion})
	c.must(err, "watching")
	event := c.next(events, func(watch.Event) bool { return true })
	c.expect(event.Type == watch.Added && event.Object.(*corev1.Secret).Name == "second", "seen: %+v", event)
	events.Stop()

	events, err = client.Watch(c.ctx, metav1.ListOptions{})
	c.must(err, "watching from any version")
	seen := map[string]bool{}
	for len(seen) < 2 {
		event := c.next(events, ofType(watch.Added))
		seen[event.Object.(*corev1.Secret).Name] = true
	}
	c.expect(seen["first"] && seen["second"], "seen: %v", seen)
	events.Stop()

	c.streamedList(client.Watch)
	c.retryWatcher(list.ResourceVersion)
	c.bookmark(list.ResourceVersion)
}

// bookmark has a watch that ends in time say before how far it has come, with events that it doesn't show.
func (c *check) bookmark(from string) {
	client := c.typed.CoreV1().Secrets(c.namespace)
	// The real server looks once a second whether a bookmark is due, and may be late once.
	for attempt := range 5 {
		events, err := client.Watch(c.ctx, metav1.ListOptions{
			ResourceVersion: from, AllowWatchBookmarks: true, TimeoutSeconds: ptr.To(int64(5)),
			FieldSelector: "metadata.name=second",
		})
		c.must(err, "watching for a while")
		c.next(events, ofType(watch.Added))
		unseen, err := client.Create(c.ctx, newSecret(fmt.Sprintf("unseen-%d", attempt), "0", nil), metav1.CreateOptions{})
		c.must(err, "writing what the watch doesn't show")
		for event := range events.ResultChan() {
			if event.Type != watch.Bookmark {
				c.fail("seen: %+v", event)
			}
			bookmark := event.Object.(*corev1.Secret)
			order, err := resourceversion.CompareResourceVersion(bookmark.ResourceVersion, unseen.ResourceVersion)
			c.must(err, "comparing versions")
			c.expect(bookmark.Name == "" && order >= 0, "bookmark %+v, %s unseen", bookmark, unseen.ResourceVersion)
			events.Stop()
			return
		}
	}
	c.fail("no watch ends with a bookmark")
}

func (c *check) streamedList(open func(context.Context, metav1.ListOptions) (watch.Interface, error)) {
	events, err := open(c.ctx, metav1.ListOptions{
		SendInitialEvents: ptr.To(true), AllowWatchBookmarks: true,
		ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan,
	})
	c.must(err, "a streaming list")
	defer events.Stop()
	added := 0
	end := c.next(events, func(event watch.Event) bool {
		if event.Type == watch.Added {
			added++
		}
		return event.Type == watch.Bookmark
	}).Object.(*corev1.Secret)
	c.expect(added == 2 && end.Annotations[metav1.InitialEventsAnnotationKey] == "true", "after %d: %+v", added, end)
	c.expect(end.ResourceVersion != "" && end.ResourceVersion != "0", "its version is %q", end.ResourceVersion)
	_, err = open(c.ctx, metav1.ListOptions{SendInitialEvents: ptr.To(true), AllowWatchBookmarks: true})
	c.refused(apierrors.IsInvalid, err, "a streaming list without a rule for versions")
}

// retryWatcher goes on over cuts, and misses nothing.
func (c *check) retryWatcher(from string) {
	breakable := newNetwork()
	reader := c.clientsFor(breakable.through(c.config, &recorder{}))
	watcher, err := watchtools.NewRetryWatcherWithContext(c.ctx, from, &cache.ListWatch{
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			return reader.typed.CoreV1().Secrets(c.namespace).Watch(ctx, options)
		},
	})
	c.must(err, "a watcher that tries again")
	defer watcher.Stop()
	c.next(watcher, ofType(watch.Added))
	for i := range 3 {
		name := fmt.Sprintf("retried-%d", i)
		breakable.cut(false)
		c.typedSecret(name, nil)
		event := c.next(watcher, func(watch.Event) bool { return true })
		c.expect(event.Type == watch.Added && event.Object.(*corev1.Secret).Name == name, "seen: %+v", event)
	}
}

// lostHistory is for a server that keeps 100 events a resource, or forgets when it is asked to.
func (c *check) lostHistory() {
	client := c.typed.CoreV1().Secrets(c.namespace)
	requests, breakable := &recorder{}, newNetwork()
	reader := c.clientsFor(breakable.through(c.config, requests))
	for i := range pagedObjects {
		c.typedSecret(fmt.Sprintf("object-%02d", i), nil)
	}
	informer := c.factory(reader.typed, nil).Core().V1().Secrets().Informer()
	c.start(informer)
	before, err := client.List(c.ctx, metav1.ListOptions{Limit: 10})
	c.must(err, "the first page")
	lists := requests.count(isList)
	breakable.cut(true)
	c.must(client.Delete(c.ctx, "object-07", metav1.DeleteOptions{}), "deleting")
	for i := range 150 {
		c.typedSecret(fmt.Sprintf("unseen-%03d", i), nil)
	}
	c.ask("forget history")
	_, err = client.List(c.ctx, metav1.ListOptions{Limit: 10, Continue: before.Continue})
	c.refused(apierrors.IsResourceExpired, err, "a page of what is forgotten")
	rest := c.status(err).ListMeta.Continue
	c.expect(rest != "", "no token to go on with: %v", err)
	page, err := client.List(c.ctx, metav1.ListOptions{Limit: 10, Continue: rest})
	c.must(err, "going on with what there is")
	c.expect(len(page.Items) == 10 && page.Items[0].Name == "object-10", "it has %d", len(page.Items))
	_, err = client.List(c.ctx, metav1.ListOptions{
		ResourceVersion: before.ResourceVersion, ResourceVersionMatch: metav1.ResourceVersionMatchExact,
	})
	c.refused(apierrors.IsResourceExpired, err, "a list of what is forgotten")
	c.forgottenWatch(before.ResourceVersion)
	breakable.restore()
	c.holds("an informer", informer, "")
	c.expect(requests.count(isList) > lists, "no new list")
}

func (c *check) forgottenWatch(version string) {
	events, err := c.typed.CoreV1().Secrets(c.namespace).Watch(c.ctx, metav1.ListOptions{ResourceVersion: version})
	if err == nil {
		defer events.Stop()
		err = apierrors.FromObject(c.next(events, ofType(watch.Error)).Object)
	}
	c.expect(apierrors.IsResourceExpired(err) || apierrors.IsGone(err), "a watch from what is forgotten: %v", err)
}

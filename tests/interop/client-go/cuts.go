package main

import (
	"fmt"
	"math/rand"
	"net/url"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
)

const (
	cutRounds     = 4
	randomWriters = 8
	randomWrites  = 5000
	randomNames   = 60
	// With each, the informers wait longer before they try again.
	randomCuts = 8
)

func isList(_ string, query url.Values) bool {
	return query.Get("watch") != "true" || query.Get("sendInitialEvents") == "true"
}

// informersAndCuts has an informer go on where it was when its connection ended, without a new list.
func (c *check) informersAndCuts() {
	requests, breakable := &recorder{}, newNetwork()
	reader := c.clientsFor(breakable.through(c.config, requests))
	writer := &author{c, map[string][]string{}}
	writer.create("counter", nil)
	watcher := c.start(c.factory(reader.typed, nil).Core().V1().Secrets().Informer())
	lists := requests.count(isList)
	for round := range cutRounds {
		// A watch that ends at once, with nothing sent, counts as a failure: then there would be a new list.
		writer.update("counter", 10+round)
		c.sees("a change before a cut", watcher, writer.history)
		breakable.cut(true)
		writer.create(fmt.Sprintf("unseen-%d", round), nil)
		writer.update("counter", 100+round)
		if round > 0 {
			writer.delete(fmt.Sprintf("unseen-%d", round-1))
		}
		breakable.restore()
		c.sees("what happened while there was no connection", watcher, writer.history)
	}
	c.expect(breakable.cuts >= cutRounds, "%d cuts", breakable.cuts)
	c.expect(requests.count(isList) == lists, "%d lists, %d before the cuts", requests.count(isList), lists)
	c.details["cuts"] = breakable.cuts
}

// randomWrites has informers end up with what there is, after writes by many and cuts at any byte.
func (c *check) randomWrites() {
	requests, breakable := &recorder{}, newNetwork()
	reader := c.clientsFor(breakable.through(c.config, requests))
	all := c.factory(reader.typed, nil).Core().V1().Secrets().Informer()
	some := c.factory(reader.typed, func(options *metav1.ListOptions) {
		options.LabelSelector = "pick=yes"
	}).Core().V1().Secrets().Informer()
	c.start(all)
	c.start(some)
	breakable.unleash(0.02, randomCuts)
	var refused atomic.Int64
	c.together(randomWriters, func(worker int) error {
		random := rand.New(rand.NewSource(int64(worker)))
		for range randomWrites / randomWriters {
			err := c.randomWrite(random)
			if apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
				refused.Add(1)
			} else if err != nil {
				return err
			}
		}
		return nil
	})
	breakable.unleash(0, 0)
	c.details["cuts"], c.details["refused"] = breakable.cuts, refused.Load()
	c.details["lists"], c.details["watches"] = requests.count(isList), requests.count(isWatch)
	c.expect(breakable.cuts > 0, "nothing was cut")
	c.holds("an informer", all, "")
	c.holds("an informer with a label selector", some, "pick=yes")
}

func (c *check) randomWrite(random *rand.Rand) error {
	client := c.typed.CoreV1().Secrets(c.namespace)
	name := fmt.Sprintf("random-%d", random.Intn(randomNames))
	value := fmt.Sprint(random.Int())
	labels := map[string]string{"pick": []string{"yes", "no"}[random.Intn(2)]}
	var err error
	switch random.Intn(10) {
	case 0, 1, 2, 3:
		_, err = client.Create(c.ctx, newSecret(name, value, labels), metav1.CreateOptions{})
	case 4, 5:
		_, err = client.Update(c.ctx, newSecret(name, value, labels), metav1.UpdateOptions{})
	case 6, 7:
		patch := fmt.Sprintf(`{"stringData":{"value":"%s"},"metadata":{"labels":{"pick":"%s"}}}`, value, labels["pick"])
		_, err = client.Patch(c.ctx, name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	default:
		err = client.Delete(c.ctx, name, metav1.DeleteOptions{})
	}
	return err
}

// holds waits until an informer has exactly what a fresh list has.
func (c *check) holds(what string, informer cache.SharedIndexInformer, selector string) {
	list, err := c.typed.CoreV1().Secrets(c.namespace).List(c.ctx, metav1.ListOptions{LabelSelector: selector})
	c.must(err, "listing")
	c.expect(len(list.Items) > 0, "nothing is left")
	c.eventually(what+" has what a fresh list has", func() bool {
		held := informer.GetStore().List()
		if len(held) != len(list.Items) {
			return false
		}
		for i := range list.Items {
			found, isThere, err := informer.GetStore().Get(&list.Items[i])
			if err != nil || !isThere || !equality.Semantic.DeepEqual(found.(*corev1.Secret), &list.Items[i]) {
				return false
			}
		}
		return true
	})
}

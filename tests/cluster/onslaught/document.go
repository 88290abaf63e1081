package onslaught

import (
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"
	"strings"
)

// document is what REST says of itself.
type document struct {
	Paths map[string]map[string]struct {
		Responses map[string]any `json:"responses"`
	} `json:"paths"`
}

func readDocument(address string) (*document, error) {
	response, err := http.Get(address)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	var read document
	return &read, json.NewDecoder(response.Body).Decode(&read)
}

// What isn't under /v1.
var plain = map[string]bool{"/": true, "/openapi.json": true, "/metrics": true, "/healthz": true, "/readyz": true}

// allows tells whether a request may be answered so: as the operation says, or as the description says
// of what is no operation.
func (d *document) allows(method, target string, status int) bool {
	switch status {
	case http.StatusBadRequest, http.StatusRequestEntityTooLarge, http.StatusRequestHeaderFieldsTooLarge:
		return true
	}
	if target == unknown {
		return status == http.StatusNotFound || status == http.StatusMethodNotAllowed || d.anywhere(status)
	}
	parsed, err := url.ParseRequestURI(target)
	if err != nil || !strings.HasPrefix(target, "/") {
		return status == http.StatusNotFound
	}
	for pattern, operations := range d.Paths {
		if !matches(pattern, parsed.EscapedPath()) {
			continue
		}
		operation, known := operations[strings.ToLower(method)]
		if !known || method != strings.ToUpper(method) {
			return status == http.StatusMethodNotAllowed
		}
		if _, said := operation.Responses[strconv.Itoa(status)]; said {
			return true
		}
	}
	if plain[parsed.Path] {
		if method != http.MethodGet {
			return status == http.StatusMethodNotAllowed
		}
		return status == http.StatusOK || parsed.Path == "/readyz" && status == http.StatusServiceUnavailable
	}
	return status == http.StatusNotFound
}

func (d *document) anywhere(status int) bool {
	for _, operations := range d.Paths {
		for _, operation := range operations {
			if _, said := operation.Responses[strconv.Itoa(status)]; said {
				return true
			}
		}
	}
	return false
}

func matches(pattern, path string) bool {
	want, have := strings.Split(pattern, "/"), strings.Split(path, "/")
	if len(want) != len(have) {
		return false
	}
	for i := range want {
		if strings.HasPrefix(want[i], "{") {
			if have[i] == "" {
				return false
			}
			continue
		}
		if unescaped, err := url.PathUnescape(have[i]); err != nil || unescaped != want[i] {
			return false
		}
	}
	return true
}

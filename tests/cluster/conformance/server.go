package conformance

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// Server is one of the two.
type Server struct {
	URL    string
	Token  string // "" for one that asks for none
	Client *http.Client
}

// How long a request may take, and a watch may have nothing to say.
const patience = 20 * time.Second

// Run sends the steps of a script and returns their answers, normalized.
func (s *Server) Run(script *Script) ([]Answer, error) {
	kept := map[string]string{"NS": "conformance-" + script.Name}
	namespace := Step{
		Name:    "the script's own namespace",
		Request: "POST /api/v1/namespaces",
		Body:    map[string]any{"metadata": map[string]any{"name": kept["NS"]}},
	}
	if made, err := s.send(&namespace, kept); err != nil || made["code"] != float64(http.StatusCreated) {
		return nil, fmt.Errorf("namespace %s: %v %v", kept["NS"], made, err)
	}
	names := newNames()
	var answers []Answer
	for i := range script.Steps {
		step := &script.Steps[i]
		answer, err := s.send(step, kept)
		for deadline := time.Now().Add(patience); err == nil && step.Until != 0 &&
			answer["code"] != float64(step.Until) && time.Now().Before(deadline); {
			time.Sleep(100 * time.Millisecond)
			answer, err = s.send(step, kept)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", step.Name, err)
		}
		for word, path := range step.Keep {
			value, ok := lookUp(answer["body"], strings.Split(path, ".")).(string)
			if !ok {
				return nil, fmt.Errorf("%s: there is no %s to keep in %v", step.Name, path, answer)
			}
			kept[word] = value
		}
		answers = append(answers, names.normalize(answer, step.Managed))
	}
	return answers, nil
}

func (s *Server) send(step *Step, kept map[string]string) (Answer, error) {
	var words []string
	for word, value := range kept {
		words = append(words, "$"+word, value)
	}
	fill := strings.NewReplacer(words...).Replace
	method, target, found := strings.Cut(fill(step.Request), " ")
	if !found {
		return nil, fmt.Errorf("%q is no METHOD /path", step.Request)
	}
	body := fill(step.Text)
	contentType := step.Type
	if step.Body != nil {
		text, err := json.Marshal(step.Body)
		if err != nil {
			return nil, err
		}
		body = fill(string(text))
	}
	if body != "" && contentType == "" {
		contentType = "application/json"
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, method, s.URL+target, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Accept", "application/json")
	if step.Accept != "" {
		request.Header.Set("Accept", step.Accept)
	}
	if contentType != "" {
		request.Header.Set("Content-Type", contentType)
	}
	if s.Token != "" {
		request.Header.Set("Authorization", "Bearer "+s.Token)
	}
	response, err := s.Client.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	answer := Answer{"code": float64(response.StatusCode), "type": response.Header.Get("Content-Type")}
	for _, header := range []string{"Warning", "Retry-After"} {
		if values := response.Header.Values(header); len(values) > 0 {
			var all []any
			for _, value := range values {
				all = append(all, value)
			}
			answer[strings.ToLower(header)] = all
		}
	}
	if step.Events > 0 && response.StatusCode == http.StatusOK {
		answer["body"], err = readEvents(response.Body, step.Events)
		return answer, err
	}
	content, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, err
	}
	var object any
	if json.Unmarshal(content, &object) != nil {
		object = string(content)
	}
	answer["body"] = object
	return answer, nil
}

// readEvents reads so many, or as many as come until the stream ends.
func readEvents(stream io.Reader, count int) (any, error) {
	events := []any{}
	lines := bufio.NewScanner(stream)
	lines.Buffer(nil, 16<<20)
	for len(events) < count && lines.Scan() {
		var event any
		if err := json.NewDecoder(bytes.NewReader(lines.Bytes())).Decode(&event); err != nil {
			return nil, err
		}
		events = append(events, event)
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("after %d of %d events %v: %w", len(events), count, events, err)
	}
	return events, nil
}

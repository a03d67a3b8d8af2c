"""What the viewer's server says, as types: the contract between the server and the page.

**Way in.** `rubricem view` prints `http://127.0.0.1:PORT/#token=T`. The page takes T out of the fragment, keeps it
in `sessionStorage`, removes it from the address, and sends `Authorization: Bearer T` with every request to `/api/`.
There is no cookie: nothing that another page could make the browser send. Without the token the answer is 401.

**Requests.** All paths below begin with `/api`. `{run}` and all other ids are opaque and safe in a path as they are;
only a question on the bank (`text`) and a filter (`q`) need escaping.

    GET  /runs                                    RunList
    GET  /compare?run=A&run=B[&run=C]             Comparison
    GET  /runs/{run}                              RunDetail
    GET  /runs/{run}/state                        RunCard       poll this one; it is small
    GET  /runs/{run}/curves                       Comparison    (figures alone)
    GET  /runs/{run}/ablation                     Ablation      (rubricem_viewer.ablation)
    GET  /runs/{run}/trajectories                 TrajectoryPage
         ?page=1&size=50&q=&sort=newest&step_from=&step_to=&question=&group=&lesson=&ending=&valid=&stage=answer
         &score_from=&score_to=
    GET  /runs/{run}/trajectories/{id}            TrajectoryView   ?from_element=0
    GET  /runs/{run}/trajectories/{id}/elements/{index}?offset=0   ElementText
    GET  /runs/{run}/trajectories/{id}/tokens?offset=0&limit=2000  TokenPage
    GET  /runs/{run}/groups/{group}               GroupView     ?sort=attempt|mean|STAGE
    GET  /runs/{run}/questions?page=1&size=50&q=  QuestionPage
    GET  /runs/{run}/questions/{question}         RubricHistory
    GET  /runs/{run}/bank?page=1&size=50&q=&status=active   BankPage
    GET  /runs/{run}/bank/search?text=&limit=10   BankPage
    GET  /runs/{run}/bank/{item}                  BankItemView
    POST /runs/{run}/bank/{item}                  BankChange -> BankItemView
    GET  /runs/{run}/evaluation                   EvaluationView
    GET  /runs/{run}/evaluation/examples?page=1&size=50&q=&sort=id   ExamplePage
    GET  /runs/{run}/evaluation/examples/{example}   ExampleView

**Answers.** JSON in UTF-8. Each 200 to a GET has an `ETag`; sent back as `If-None-Match` it is answered with 304 and
no body as long as nothing has changed, so that polling is cheap. Any other status than 200 or 304 has a body of
`status` and `message`, a sentence to show. 401: no token, or a wrong one. 403: it cannot be changed here. 404: there is
no such thing. 409: a newer release wrote it, or its file is damaged. 422: a parameter is out of its range.

**Text.** Every string is data: it may hold script tags, control characters and right-to-left marks. Show it as text,
never as HTML. Addresses (`url`) have been checked: http or https, or empty.

**Offsets** (`start`, `end`) count UTF-16 units, so that they index a JavaScript string. They belong to the text of
the element that they stand on or name.

**Numbers.** Scores lie between 0 and 1; null is "no score", which is never a zero.
"""

"""The tools of the paper by name, and the optional page fetcher, with what each takes."""

from rubricem_env.tools.spec import Kind, Parameter, ToolSpec

GOOGLE_SEARCH = "google_search"
SNIPPET_SEARCH = "snippet_search"
FETCH_PAGE = "fetch_page"

DEFAULT_LIMIT = 3
MAX_LIMIT = 10

GOOGLE_SEARCH_SPEC = ToolSpec(
    name=GOOGLE_SEARCH,
    description="Search the web: a short synthesised answer, and snippets with title and URL to cite.",
    aliases=(
        "google",
        "google_web_search",
        "web_search",
        "googlesearch",
        "search_google",
        "search_web",
        "google_search_tool",
    ),
)
SNIPPET_SEARCH_SPEC = ToolSpec(
    name=SNIPPET_SEARCH,
    description="Search scientific papers: excerpts that match the query, with the paper's title and URL to cite.",
    aliases=(
        "snippets",
        "scholar_search",
        "google_scholar_search",
        "google_scholar",
        "scholar",
        "paper_search",
        "search_papers",
        "semantic_scholar_search",
        "semantic_scholar",
        "semantic_scholar_snippet_search",
    ),
    parameters=(
        Parameter(
            name="limit",
            kind=Kind.INTEGER,
            description="How many snippets.",
            minimum=1,
            maximum=MAX_LIMIT,
            aliases=("num", "num_results", "number", "count", "k", "top_k", "n", "max_results", "results"),
        ),
        Parameter(
            name="year",
            description="The year of publication, or a range open on either side: 2020, 2018-2022, 2020-, -2015.",
            pattern=r"\s*[0-9]{1,4}\s*|\s*[0-9]{1,4}\s*-\s*[0-9]{1,4}\s*|\s*[0-9]{1,4}\s*-\s*|\s*-\s*[0-9]{1,4}\s*",
            example="a year or a range, such as 2020, 2018-2022, 2020- or -2015",
            aliases=("years", "publication_year", "date", "year_range"),
        ),
        Parameter(
            name="fieldsOfStudy",
            description="Fields of study, separated by commas, such as Medicine,Biology.",
            aliases=("field", "fields", "field_of_study", "subject", "discipline"),
        ),
    ),
)
FETCH_PAGE_SPEC = ToolSpec(
    name=FETCH_PAGE,
    description="Read the text of one public web page; the query is its http or https address.",
    aliases=(
        "open_page",
        "browse",
        "browse_page",
        "visit",
        "visit_page",
        "open_url",
        "fetch",
        "fetch_url",
        "read_page",
    ),
)

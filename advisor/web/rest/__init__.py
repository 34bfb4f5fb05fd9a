"""REST views of what people do on the pages, with the functions of the pages."""

from advisor.web.rest import again, files, held, shared

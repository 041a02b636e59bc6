"""The console: pages for people, over the same services as REST.

`mount` stands in front and lets nobody in without a session; `site` and everything it imports are
loaded when the first page is asked for, because NiceGUI is large and most admin processes never
show a page. docs/ARCHITECTURE.md says how a page is written.
"""

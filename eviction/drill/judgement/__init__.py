"""Did what the scenario expects hold?"""
